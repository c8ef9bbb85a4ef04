"""Merge of an issue's fields: each has a version of its own, and a person's decision stands until ours changes. Pure.

The title, the body and the assignees are written once, when an issue is opened, and are people's from then on: no forge
lets a writer say which version of a text it has read, so a later write could replace what a person saves meanwhile.
Labels are added and removed one by one, the state is a field of two values, and neither holds words.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from counterpoint.proto.messages import Shape

IssueState = Literal["open", "closed"]


class AgreedFields(Shape):
    """The fields of an issue as both sides last had them.

    `labels` are those that were put by us, `refused` those of ours that a person took away. `wanted` is the state that
    our side had, `found` the one at the forge, and `by_person` whether a person made it so. A version counts the
    changes of its field.
    """

    labels: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    labels_version: int = 0
    wanted: IssueState = "open"
    found: IssueState = "open"
    by_person: bool = False
    state_version: int = 0


@dataclass(frozen=True)
class FieldWrites:
    """The changes to make at the forge. An issue is never reopened by us."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    close: bool = False


@dataclass(frozen=True)
class OurFields:
    """Our side of the fields. `begun` are labels that an attempt without a known end may have put."""

    labels: tuple[str, ...]
    state: IssueState
    begun: tuple[str, ...] = ()


def merge_fields(
    agreed: AgreedFields, ours: OurFields, their_labels: Iterable[str], their_state: IssueState
) -> tuple[FieldWrites, AgreedFields]:
    """Return what to write, and the fields after it.

    A label that we put and a person took away is not put again, and a label that a person put is not taken away. Forges
    compare labels without regard to case.
    """
    labels = tuple({each.lower(): each for each in reversed(ours.labels)}.values())[::-1]
    wanted, theirs = _keys(labels), _keys(their_labels)
    known = tuple(dict.fromkeys((*agreed.labels, *ours.begun)))
    there, gone = _keys(known) & theirs, (_keys(agreed.labels) - theirs) | _keys(agreed.refused)
    add = tuple(each for each in labels if each.lower() not in theirs | gone)
    put = tuple(each for each in labels if each.lower() in there or each in add)
    refused = tuple(each for each in labels if each.lower() in gone and each.lower() not in theirs)
    remove = tuple(each for each in known if each.lower() in there - wanted)
    state = _merge_state(agreed, ours.state, their_state)
    changed = (put, refused) != (agreed.labels, agreed.refused)
    version = agreed.labels_version + changed
    fields = state.model_copy(update={"labels": put, "refused": refused, "labels_version": version})
    return FieldWrites(add, remove, close=state.found != their_state), fields


def _merge_state(agreed: AgreedFields, ours: IssueState, theirs: IssueState) -> AgreedFields:
    """Return the state after the merge: `found` differs from `theirs` if it is to be written."""
    found, by_person = theirs, agreed.by_person
    if theirs != ours and theirs != agreed.found:
        by_person = True
    elif theirs == "open" and ours == "closed" and agreed.wanted == "open":
        found, by_person = "closed", False
    changed = (ours, found) != (agreed.wanted, agreed.found)
    return agreed.model_copy(
        update={
            "wanted": ours,
            "found": found,
            "by_person": by_person,
            "state_version": agreed.state_version + changed,
        }
    )


def _keys(labels: Iterable[str]) -> set[str]:
    return {each.lower() for each in labels}

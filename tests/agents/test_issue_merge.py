"""The merge of an issue's fields: no decision of a person is undone, and both sides come to agree."""

from hypothesis import given
from hypothesis import strategies as st

from counterpoint.router.issues.merge import AgreedFields, FieldWrites, IssueState, OurFields, merge_fields

OURS = ("counterpoint", "counterpoint: needs you", "counterpoint: proposed")
LABELS = st.lists(st.sampled_from(OURS), unique=True).map(tuple)
THEIRS = st.lists(st.sampled_from((*OURS, "bug", "Später", "COUNTERPOINT")), unique=True).map(frozenset)
STATES: st.SearchStrategy[IssueState] = st.sampled_from(("open", "closed"))
SIDES = st.builds(OurFields, LABELS, STATES)
STEPS = st.lists(st.tuples(SIDES, st.none() | st.tuples(THEIRS, STATES)), min_size=1, max_size=12)


class World:
    """An issue at a forge, and what is known of it here."""

    def __init__(self) -> None:
        self.agreed = AgreedFields()
        self.labels: frozenset[str] = frozenset()
        self.state: IssueState = "open"

    def compare(self, ours: OurFields) -> bool:
        """Merge and write; return whether anything was written."""
        writes, self.agreed = merge_fields(self.agreed, ours, self.labels, self.state)
        self.labels = frozenset(each for each in self.labels if each not in writes.remove) | set(writes.add)
        self.state = "closed" if writes.close else self.state
        return writes != FieldWrites()


def keys(labels: frozenset[str] | tuple[str, ...]) -> set[str]:
    return {each.lower() for each in labels}


@given(STEPS)
def test_a_comparison_that_is_repeated_writes_nothing(steps: list[tuple[OurFields, object]]) -> None:
    world = World()
    for ours, _ in steps:
        world.compare(ours)
        before = world.agreed
        assert not world.compare(ours)
        assert world.agreed == before


@given(STEPS)
def test_without_people_the_forge_shows_our_side(steps: list[tuple[OurFields, object]]) -> None:
    world = World()
    for ours, _ in steps:
        world.compare(ours)
        assert world.labels == set(ours.labels)
    assert world.state == ("closed" if any(ours.state == "closed" for ours, _ in steps) else "open")


@given(STEPS)
def test_no_decision_of_a_person_is_undone(
    steps: list[tuple[OurFields, tuple[frozenset[str], IssueState] | None]],
) -> None:
    """A label that a person put stays, one that they took away does not come back, and a state that they set stays
    until ours changes."""
    world, theirs, taken = World(), set[str](), set[str]()
    put_by_us, wanted = set[str](), world.agreed.wanted
    for ours, edit in steps:
        by_person = False
        if edit is not None:
            labels, state = edit
            added, removed = keys(labels) - keys(world.labels), keys(world.labels) - keys(labels)
            theirs = (theirs | added) - removed
            taken = (taken | (removed & put_by_us)) - added
            by_person = state != world.state
            world.labels, world.state = labels, state
        before = world.state
        world.compare(ours)
        assert theirs - put_by_us <= keys(world.labels)
        # What leaves our side and comes back is a new label.
        taken &= keys(ours.labels)
        assert not (taken & keys(world.labels)) - theirs
        if by_person or ours.state == wanted:
            assert world.state == before or ((before, ours.state) == ("open", "closed") and not by_person)
        if before == "closed":
            assert world.state == "closed", "an issue is never reopened by us"
        wanted = ours.state
        put_by_us = keys(world.agreed.labels)


@given(SIDES, THEIRS, STATES)
def test_versions_count_changes_of_their_own_field(ours: OurFields, labels: frozenset[str], state: IssueState) -> None:
    agreed = AgreedFields()
    writes, after = merge_fields(agreed, ours, labels, state)
    assert after.labels_version == (after.labels != agreed.labels)
    assert after.state_version == ((after.wanted, after.found) != (agreed.wanted, agreed.found))
    assert after.by_person == (state == "closed" and ours.state == "open")
    assert writes.close == (state == "open" and ours.state == "closed")


@given(SIDES, THEIRS)
def test_labels_of_an_attempt_without_an_end_are_ours(ours: OurFields, labels: frozenset[str]) -> None:
    """The first attempt put its labels and was killed: the next one takes away those that are not wanted any more."""
    begun = OurFields(ours.labels, ours.state, begun=OURS)
    writes, after = merge_fields(AgreedFields(), begun, labels | set(OURS), "open")
    assert set(writes.remove) == set(OURS) - set(ours.labels)
    assert after.labels == ours.labels
    assert not writes.add

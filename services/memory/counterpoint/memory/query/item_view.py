"""Item view: a row of the record as an item, and its visibility."""

from typing import Any

from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.provenance.read_sets import Outline, ReadItem, cites
from counterpoint.memory.record.plan import SYSTEM
from counterpoint.proto.memory import Item, QueryPlan, QueryResult, Ref
from counterpoint.proto.subjects import SHARED_PROJECT
from counterpoint.proto.upcast import upcast

_ALL_FIELDS = set(Item.model_fields)


def visible(policy: Policy, grant: Grant, row: Any) -> bool:
    """Whether a grant allows its holder to see a row of `records`."""
    store = row["store"]
    if policy.stores[store].system:
        return bool(row["label"] <= grant.clearance)
    return diode.visible(policy, grant, store, row["id"], row["project"], row["label"])


def projects(policy: Policy, grant: Grant, store: str) -> list[str]:
    """Return the projects in which a grant's holder sees records of a store, its own first."""
    row = policy.stores[store]
    if row.system:
        return [SYSTEM]
    return [grant.project, SHARED_PROJECT] if row.shared else [grant.project]


def item(row: Any, score: float | None = None, scores: dict[str, float] | None = None) -> Item:
    """Return a row of `records` as an item."""
    project = row["project"] if row["project"] != SYSTEM else "default"
    _, body = upcast(row["store"], row["schema_version"], row["body"])
    # As `Item(...)` makes it, without validation: the columns have these types, and a line has a hundred items.
    view = Item.__new__(Item)
    values = {
        "store": row["store"],
        "id": row["id"],
        "project": project,
        "version": row["version"],
        "body": body,
        "author": row["author"],
        "label": row["label"],
        "integrity": row["integrity"],
        "seq": row["seq"],
        "at": row["at"],
        "score": score,
        "scores": scores,
    }
    object.__setattr__(view, "__dict__", values)
    object.__setattr__(view, "__pydantic_fields_set__", _ALL_FIELDS)
    object.__setattr__(view, "__pydantic_extra__", None)
    object.__setattr__(view, "__pydantic_private__", None)
    return view


def ref(row: Any) -> Ref:
    """Return the reference of a row's version."""
    return Ref(store=row["store"], id=row["id"], version=row["version"])


def read_item(view: Item) -> ReadItem:
    """Return an item of the read set."""
    named = tuple(Ref(store=each["store"], id=each["id"], version=each["version"]) for each in cites(view.body))
    ref_of_item = Ref(store=view.store, id=view.id, version=view.version)
    shared = view.project == SHARED_PROJECT
    return ReadItem(ref_of_item, view.label, view.integrity, view.score, named, shared, view.scores)


def outline_of(result: QueryResult) -> Outline:
    """Return a result without its items. Reports, erased items and messages of the log are no records."""
    complete = result.report is None and not result.erased and result.plan != QueryPlan.LOG
    return Outline(result.tier, result.plan, result.partial, result.next_cursor, complete)

"""Line graph: the changes of `actions` and `tasks` as writes to one Ladybug database.

Task and Action are nodes; LEADS_TO goes from an action to its consequences, COORDINATES_WITH from an action to
concurrent ones, PART_OF from an action to its task. A record may name a later one: that is `Awaited`, and linked when
it is there. A removed record leaves its version in `Removed`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from counterpoint.memory.projection.tier import RecordChange, TierPosition, newest

SCHEMA = files(__package__).joinpath("schema.cypher").read_text()
STORES = ("actions", "tasks")
TEXT_CHARS = 1000
"""Length limit of a text in the graph, in characters; the record has the whole text."""

Run = Callable[[str, Mapping[str, Any]], list[list[Any]]]
"""Runs a statement with its parameters; returns its rows."""
_Key = tuple[str, str]
_Link = tuple[str, str, str]
"""An edge: its kind, the action that names it, and its target."""

_NODE = {"actions": ("Action", "action_id"), "tasks": ("Task", "task_id")}
_FIELDS = {
    "actions": ("agent", "kind", "reasoning", "result", "decision_id", "at"),
    "tasks": ("session_id", "kind", "state", "title", "description", "error_message"),
}
_LISTS = ("after", "coordinates_with")
_BOTH = "MATCH (a:Action {action_id: l.one}) WITH l, a MATCH (b:%s {%s: l.other}) MERGE %s"
"""Two matches in one clause scan the second table; one after the other, each is a lookup by key."""
LINKS = {
    "LEADS_TO": _BOTH % ("Action", "action_id", "(b)-[:LEADS_TO]->(a)"),
    "COORDINATES_WITH": _BOTH % ("Action", "action_id", "(a)-[:COORDINATES_WITH]->(b)"),
    "PART_OF": _BOTH % ("Task", "task_id", "(a)-[:PART_OF]->(b)"),
}
_UNLINK = (
    "UNWIND $ids AS id MATCH (a:Action {action_id: id})<-[e:LEADS_TO]-() DELETE e",
    "UNWIND $ids AS id MATCH (a:Action {action_id: id})-[e:COORDINATES_WITH]->() DELETE e",
    "UNWIND $ids AS id MATCH (a:Action {action_id: id})-[e:PART_OF]->() DELETE e",
)
_WAITING = {
    "actions": (
        "MATCH (x:Action {action_id: $id})-[:LEADS_TO]->(a:Action) RETURN a.action_id",
        "MATCH (x:Action {action_id: $id})<-[:COORDINATES_WITH]-(a:Action) RETURN a.action_id",
    ),
    "tasks": ("MATCH (x:Task {task_id: $id})<-[:PART_OF]-(a:Action) RETURN a.action_id",),
}


def write(run: Run, changes: Sequence[RecordChange], position: TierPosition, highest_label: int) -> None:
    """Apply changes inside one transaction. Records with a higher label are treated as removed."""
    stored, removed = _stored_versions(run, changes)
    fresh = newest(changes, stored | {key: max(removed[key], stored.get(key, 0)) for key in removed})
    removed_ids = [change for change in fresh if change.body is None or change.label > highest_label]
    existing = [change for change in fresh if change.body is not None and change.label <= highest_label]
    awaited: dict[str, list[str]] = {}
    for change in removed_ids:
        awaited[_record(change)] = _remove(run, change)
    for store in STORES:
        of_store = [change for change in existing if change.store == store]
        _keep(run, store, of_store, [key for key in stored if key[0] == store])
    back = [_record(change) for change in existing if _key(change) in removed]
    if back:
        run("UNWIND $ids AS id MATCH (r:Removed {record: id}) DELETE r", {"ids": back})
    links = dict.fromkeys(link for change in existing for link in _links(change))
    _link(run, links | dict.fromkeys(_links_to(run, existing)), awaited)
    _await(run, awaited)
    parameters = {"life": position.life, "seq": position.seq}
    run("MERGE (p:Place {name: 'place'}) SET p.life = $life, p.seq = $seq", parameters)


def parts(changes: Sequence[RecordChange], chars: int) -> list[list[RecordChange]]:
    """Divide the changes in their order into parts of about so many characters of text, at least one part."""
    found: list[list[RecordChange]] = [[]]
    size = 0
    for change in changes:
        size += sum(len(text) for text in _row(change).values() if isinstance(text, str))
        if size > chars and found[-1]:
            found.append([])
            size = 0
        found[-1].append(change)
    return found


def where(run: Run) -> TierPosition | None:
    """Return the position of the database."""
    found = run("MATCH (p:Place {name: 'place'}) RETURN p.life, p.seq", {})
    return TierPosition(found[0][0], found[0][1]) if found else None


def _stored_versions(run: Run, changes: Iterable[RecordChange]) -> tuple[dict[_Key, int], dict[_Key, int]]:
    """Return the versions of nodes and of removed records."""
    stored: dict[_Key, int] = {}
    removed: dict[_Key, int] = {}
    for store, (node, key) in _NODE.items():
        ids = list({change.id for change in changes if change.store == store})
        if not ids:
            continue
        found = run(f"UNWIND $ids AS id MATCH (n:{node} {{{key}: id}}) RETURN id, n.version", {"ids": ids})
        stored |= {(store, record_id): version for record_id, version in found}
        records = [f"{store}/{record_id}" for record_id in ids]
        found = run("UNWIND $ids AS id MATCH (r:Removed {record: id}) RETURN id, r.version", {"ids": records})
        removed |= {(store, record.partition("/")[2]): version for record, version in found}
    return stored, removed


def _remove(run: Run, change: RecordChange) -> list[str]:
    """Remove the links to some records, and let their actions wait for them."""
    node, key = _NODE[change.store]
    waiting = [row[0] for query in _WAITING[change.store] for row in run(query, {"id": change.id})]
    run(f"MATCH (n:{node} {{{key}: $id}}) DETACH DELETE n", {"id": change.id})
    parameters = {"id": _record(change), "version": change.version}
    run("MERGE (r:Removed {record: $id}) SET r.version = $version", parameters)
    return waiting


def _keep(run: Run, store: str, existing: Sequence[RecordChange], stored: Iterable[_Key]) -> None:
    """Write the nodes of a store, and remove links that an action no longer names.

    New nodes are created, not merged: a merge takes longer the more nodes there are.
    """
    if not existing:
        return
    node, key = _NODE[store]
    known = {record_id for _, record_id in stored}
    new = [_row(change) for change in existing if change.id not in known]
    changed = [_row(change) for change in existing if change.id in known]
    for statement in _UNLINK if store == "actions" and changed else ():
        run(statement, {"ids": [row["id"] for row in changed]})
    names = [name for name in (*new, *changed)[0] if name != "id"]
    if new:
        values = ", ".join(f"{name}: r.{name}" for name in names)
        run(f"UNWIND $rows AS r CREATE (:{node} {{{key}: r.id, {values}}})", {"rows": new})
    if changed:
        setting = ", ".join(f"n.{name} = r.{name}" for name in names)
        run(f"UNWIND $rows AS r MATCH (n:{node} {{{key}: r.id}}) SET {setting}", {"rows": changed})


def _row(change: RecordChange) -> dict[str, Any]:
    """Return a record as the properties of its node."""
    body = change.body or {}
    row: dict[str, Any] = {"id": change.id, "seq": change.seq, "version": change.version}
    row |= {"label": change.label, "integrity": change.integrity}
    row |= {name: _text(body.get(name)) for name in _FIELDS[change.store]}
    if change.store == "actions":
        row["task_id"] = _text(body.get("task_id") or change.task_id)
        row |= {name: [str(each) for each in body.get(name) or ()] for name in _LISTS}
    return row


def _links(change: RecordChange) -> list[_Link]:
    """Return the links that a record names."""
    if change.store != "actions" or change.body is None:
        return []
    links = [("LEADS_TO", change.id, str(parent)) for parent in change.body.get("after") or ()]
    links += [("COORDINATES_WITH", change.id, str(other)) for other in change.body.get("coordinates_with") or ()]
    task = change.body.get("task_id") or change.task_id
    return [*links, ("PART_OF", change.id, str(task))] if task else links


def _links_to(run: Run, existing: Sequence[RecordChange]) -> list[_Link]:
    """Return the waiting links to these records that are still named."""
    records = {_record(change): change for change in existing}
    found = run("UNWIND $ids AS id MATCH (w:Awaited {record: id}) RETURN id, w.waiting", {"ids": list(records) or [""]})
    if not found:
        return []
    run("UNWIND $ids AS id MATCH (w:Awaited {record: id}) DELETE w", {"ids": [row[0] for row in found]})
    waiting = list(dict.fromkeys(one for row in found for one in row[1]))
    named = "UNWIND $ids AS id MATCH (a:Action {action_id: id}) RETURN id, a.task_id, a.after, a.coordinates_with"
    names = {row[0]: row[1:] for row in run(named, {"ids": waiting})}
    links: list[_Link] = []
    for record, everyone in found:
        change = records[record]
        for one in everyone:
            task, after, concurrent = names.get(one, (None, None, None))
            if change.store == "tasks" and task == change.id:
                links.append(("PART_OF", one, change.id))
            if change.store == "actions" and change.id in (after or ()):
                links.append(("LEADS_TO", one, change.id))
            if change.store == "actions" and change.id in (concurrent or ()):
                links.append(("COORDINATES_WITH", one, change.id))
    return links


def _link(run: Run, links: Iterable[_Link], awaited: dict[str, list[str]]) -> None:
    """Create the links whose targets exist, and let the others wait."""
    for kind, statement in LINKS.items():
        of_kind = [(one, other) for name, one, other in links if name == kind]
        if not of_kind:
            continue
        pairs = [{"one": one, "other": other} for one, other in of_kind]
        linked = {
            (one, other)
            for one, other in run(f"UNWIND $links AS l {statement} RETURN l.one, l.other", {"links": pairs})
        }
        store = "tasks" if kind == "PART_OF" else "actions"
        for one, other in of_kind:
            if (one, other) not in linked:
                awaited.setdefault(f"{store}/{other}", []).append(one)


def _await(run: Run, awaited: Mapping[str, Sequence[str]]) -> None:
    waiting = {record: everyone for record, everyone in awaited.items() if everyone}
    if not waiting:
        return
    found = run("UNWIND $ids AS id MATCH (w:Awaited {record: id}) RETURN id, w.waiting", {"ids": list(waiting)})
    known = dict(found)
    for record, everyone in waiting.items():
        merged = list(dict.fromkeys([*known.get(record, ()), *everyone]))
        run("MERGE (w:Awaited {record: $id}) SET w.waiting = $waiting", {"id": record, "waiting": merged})


def _record(change: RecordChange) -> str:
    return f"{change.store}/{change.id}"


def _key(change: RecordChange) -> _Key:
    return change.store, change.id


def _text(value: Any) -> str | None:
    return None if value is None else str(value)[:TEXT_CHARS]

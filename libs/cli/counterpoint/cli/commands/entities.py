"""`counterpoint entities`: look up an entity, or list entities."""

import shlex
from typing import Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.options import Limit
from counterpoint.cli.projects import note_others
from counterpoint.cli.render.table import table
from counterpoint.cli.session import CommandSession

FAILURES_SHOWN, RELATIONS_SHOWN = 5, 10
"""Maximum number of failures and of fixes to show, and of relations that a model extracted."""
LINE_CHARS = 160


@command("entities", Panel.LOOK, "counterpoint entities orders_ingest --project orders")
def entities(
    session: CommandSession,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A job, data set, owner, repository, host, exception, ...")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="Only entities of this kind: file, service, dag, error, system.")
    ] = None,
    limit: Limit = 50,
) -> None:
    """Show the owners, inputs, failures and fixes of an entity; without a name list the entities."""
    with session.connect() as api:
        listing = api.pages("/v1/entities", limit, text=name, kind=kind, project=session.project)
        profile = api.get("/v1/entities/known", name=name, project=session.project) if name and not kind else None
        if not listing["items"]:
            note_others(session, api, shlex.join(["entities", *([name] if name else ())]))
    rows = [(each["kind"], each["name"], each["id"]) for each in listing["items"]]
    shown = {**listing, "known": profile} if profile is not None else listing
    listed = table(("kind", "name", "id"), rows, f"no entity matches {name}" if name else "no entities")
    session.show(shown, lambda: "\n".join(describe(profile)) if profile and _has_content(profile) else listed)


def describe(profile: dict[str, Any]) -> list[str]:
    """Describe an entity in lines, each statement with its source record."""
    kinds = [
        f"{each['kind']} in {ns}" if (ns := each["properties"].get("namespace")) else each["kind"]
        for each in profile["things"]
    ]
    lines = [f"{profile['name']}: {', '.join(dict.fromkeys(kinds)) or _kind_by_relations(profile)}"]
    relations = profile["relations"]
    owning = [each for each in relations if each["kind"] == "owns"]
    for title, names, known in (
        ("owned by", profile["owned_by"], owning), ("owns", profile["owns"], owning), ("fed by", profile["fed_by"], []),
        ("feeds", profile["feeds"], []),
    ):  # fmt: skip
        if names:
            lines.append(f"  {title}: {', '.join(_with_record(each, known) for each in names)}")
    for kind, title in (("runs_on", "runs on"), ("depends_on", "depends on"), ("mentions", "mentioned in")):
        ends = [each["source" if kind == "mentions" else "target"] for each in relations if each["kind"] == kind]
        names = [
            end["name"] for end in ends if end["kind"] not in ("job", "dataset") and end["name"] != profile["name"]
        ]
        if names:
            lines.append(f"  {title}: {', '.join(dict.fromkeys(names))}")
    if profile["documented_in"]:
        lines.append(f"  documented in: {', '.join(profile['documented_in'])}")
    lines += dict.fromkeys(f"  broken by: {_failure(each)}" for each in profile["broken_by"][:FAILURES_SHOWN])
    lines += dict.fromkeys(f"  fixed by: {_fix(each)}" for each in profile["fixed_by"][:FAILURES_SHOWN])
    lines += [f"  {_relation(each)}" for each in profile["stated"][:RELATIONS_SHOWN]]
    if len(profile["stated"]) > RELATIONS_SHOWN:
        lines.append(f"  and {len(profile['stated']) - RELATIONS_SHOWN} more relations found by a model")
    more = sum(max(0, len(profile[each]) - FAILURES_SHOWN) for each in ("broken_by", "fixed_by"))
    if more or profile["truncated"]:
        lines.append(f"  and more: {more} failures and fixes" if more else "  and more: the search was truncated")
    return lines


def _kind_by_relations(profile: dict[str, Any]) -> str:
    """Return the kind of a name without a record, such as an owner, by its relations."""
    ends = [each[end] for each in profile["relations"] for end in ("source", "target")]
    kinds = (end["kind"] for end in ends if end["name"].casefold() == profile["name"].casefold())
    if text := ", ".join(dict.fromkeys(kind for kind in kinds if kind != "thing")):
        return text
    return (
        "a name without a record"
        if _has_content(profile)
        else "unknown: no lineage, document or attempt contains this name"
    )


def _has_content(profile: dict[str, Any]) -> bool:
    """Return whether anything is known about a name."""
    return any(profile[each] for each in ("things", "relations", "broken_by", "fixed_by", "stated"))


def _with_record(name: str, relations: list[dict[str, Any]]) -> str:
    """Return a name with its source, where that is a document."""
    provenance = (each["provenance"] for each in relations if name in (each["source"]["name"], each["target"]["name"]))
    source = next((each["source"] for each in provenance if each["by"] == "document" and each.get("source")), None)
    return f"{name} ({source})" if source else name


def _relation(each: dict[str, Any]) -> str:
    """Return a relation that a model extracted from a document, with its quote."""
    provenance = each["provenance"]
    relation = f"{each['source']['name']} {each['kind']} {each['target']['name']}"
    return f"{relation}, found by {provenance['model']} in {provenance['source']}: '{_line(provenance['quote'])}'"


def _failure(each: dict[str, Any]) -> str:
    error = f"{each['exception']}: {each['message']}" if each.get("exception") else each["message"]
    return " · ".join(part for part in (_line(error), each.get("job"), _day(each)) if part)


def _fix(each: dict[str, Any]) -> str:
    provenance = f"{each['evidence']} by {each['by']}"
    return " · ".join(part for part in (_line(each["tried"]), provenance, each.get("job"), _day(each)) if part)


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LINE_CHARS else f"{line[: LINE_CHARS - 1]}…"


def _day(each: dict[str, Any]) -> str:
    return str(each.get("at") or "")[:10]

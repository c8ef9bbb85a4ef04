"""`counterpoint incident-settings`: show or change how incidents are handled."""

import re
from typing import Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import UsageError
from counterpoint.cli.options import parse_job
from counterpoint.cli.session import CommandSession
from counterpoint.proto.words import quantity

_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
_NAMED_UNITS_S = (("day", 24 * 3600), ("hour", 3600), ("minute", 60), ("second", 1))


@command("incident-settings", Panel.OPERATE, "counterpoint incident-settings --job shop/load --quiet 12h --shadow")
def incident_settings(
    session: CommandSession,
    job: Annotated[
        str | None, typer.Option("--job", metavar="NS/NAME", help="A job; the whole project without one.")
    ] = None,
    open_after: Annotated[
        int | None, typer.Option("--open-after", min=1, max=50, help="Open a task after this many failed flows.")
    ] = None,
    quiet: Annotated[
        str | None,
        typer.Option(
            "--quiet", metavar="TIME", help="Close after this time without a failure: 90m, 12h, 2d; 0 for never."
        ),
    ] = None,
    shadow: Annotated[
        bool | None, typer.Option("--shadow/--no-shadow", help="Record proposals without showing them.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the settings.")] = False,
) -> None:
    """Show or change the incident settings of a project or a job. Changes apply to incidents that open later."""
    body: dict[str, Any] = {"job": parse_job(job)} if job else {}
    if open_after is not None:
        body["open_after"] = open_after
    if quiet is not None:
        body["quiet_s"] = _seconds(quiet) or None
    if shadow is not None:
        body["shadow"] = shadow
    changes = body.keys() - {"job"}
    if remove and changes:
        raise UsageError("--remove cannot be combined with other options except --job")
    with session.connect() as api:
        if remove:
            settings = [api.delete("/v1/incident-settings", job=job, project=session.project)]
        elif changes:
            settings = [api.put("/v1/incident-settings", body, project=session.project)]
        else:
            settings = api.pages("/v1/incident-settings", 200, project=session.project)["items"]
    text = (
        "\n".join(map(_line, settings))
        or "no settings: incidents stay open until a success or an outcome, and proposals are shown"
    )
    session.show({"items": settings}, lambda: f"removed: {text}" if remove else text)


def _shadow_report(report: dict[str, Any]) -> str:
    if not report.get("since") and not report["items"]:
        return "no incident is in shadow: `counterpoint incident-settings --shadow` starts it"
    until = "" if report.get("due") or not report.get("due_at") else f"; the first week ends {report['due_at'][:10]}"
    head = (
        f"proposals recorded: {report['proposed']}; the outcome of {report['explained']} is known, "
        f"and {report['right']} would have been right{until}"
    )
    words = {True: "right", False: "wrong", None: "not known"}
    blocks = [
        f"{one['task_id']}  {words[one.get('right')]}\n  would have proposed: {one['proposed']}\n"
        f"  fixed by: {one.get('fixed') or 'not reported'}"
        for one in report["items"]
    ]
    return "\n\n".join([head, *blocks])


def _line(one: dict[str, Any]) -> str:
    job = one.get("job")
    scope = f"{job['namespace']}/{job['name']}" if job else "project"
    parts = []
    if one.get("open_after"):
        parts.append(f"opens after {quantity(one['open_after'], 'failed flow')}")
    if one.get("quiet_s"):
        parts.append(f"closes after {_time(one['quiet_s'])} without a failure")
    if one.get("shadow") is not None:
        parts.append(f"in shadow since {one['shadow_since'][:10]}" if one["shadow"] else "not in shadow")
    return f"{scope}: {', '.join(parts) or 'project defaults'} ({one['by']}, {one['at'][:10]})"


def _time(seconds: float) -> str:
    """Return a time in the largest unit that divides it, else in seconds."""
    unit, length = next((named for named in _NAMED_UNITS_S if seconds % named[1] == 0), _NAMED_UNITS_S[-1])
    return quantity(round(seconds / length), unit)


def _seconds(text: str) -> int:
    match = re.fullmatch(r"(\d{1,7})([smhd]?)", text.strip())
    if not match:
        raise UsageError(f"a time is a number with s, m, h or d, such as 12h, not {text}")
    return int(match[1]) * _UNITS_S[match[2]]

"""Limits of what model calls may cost: over HTTP, and as the commands send and show them."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from agents.router_house import NOW, PROJECT
from typer.testing import CliRunner
from ui.cli_server import ScriptedApi
from ui.http_front import RunningFront

from counterpoint.cli.main import app
from counterpoint.proto.limits import (
    LIMITS_MAX,
    ORGANISATION_LIMITS_MAX,
    LimitKey,
    StoredOrganisationLimit,
    bounds,
    spend_record_id,
)
from counterpoint.proto.memory import CostLine, CostReport, Costs, OrganisationLimitUse, OrganisationReport, ProjectUse

URL = "/v1/limits"


def used(front: RunningFront, *lines: CostLine) -> list[Costs]:
    """The calls of the period, as memory sums them up; the queries are kept."""
    asked: list[Costs] = []

    def reported(query: Costs) -> CostReport:
        asked.append(query)
        of_group = [line for line in lines if (line.key == PROJECT) == (query.by == "project")]
        return CostReport(by=query.by, lines=tuple(line for line in of_group if query.key in (None, line.key)))

    front.house.costs = reported
    return asked


async def test_a_limit_is_set_changed_listed_and_removed(front: RunningFront) -> None:
    used(front)
    first = (await front.me.put(URL, json={"usd": "20", "period": "month"})).json()
    assert (first["scope"], first["usd"], first["by"], first["project"]) == ("project", "20", "me", PROJECT)
    await front.me.put(URL, json={"usd": "25", "tokens": 10**6, "period": "month"})
    await front.me.put(URL, json={"scope": "task", "tokens": 500})
    listed = (await front.me.get(URL)).json()["items"]
    assert [(one["scope"], one.get("usd"), one["tokens"]) for one in listed] == [
        ("task", None, 500),
        ("project", "25", 10**6),
    ]
    removed = await front.me.delete(URL, params={"period": "month"})
    assert removed.json()["usd"] == "25"
    assert (await front.me.delete(URL, params={"period": "month"})).status_code == 404
    assert [one["scope"] for one in (await front.me.get(URL)).json()["items"]] == ["task"]


async def test_a_list_shows_the_use_and_when_a_limit_is_reached(front: RunningFront) -> None:
    since = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
    pace = (NOW - since) / timedelta(days=1)
    lines = [
        CostLine(key=PROJECT, usd=Decimal(5), input_tokens=100, output_tokens=20, under_way=1, reserved_usd=Decimal(1)),
        CostLine(key="t-7", usd=Decimal(3), input_tokens=90),
        CostLine(key="t-8", usd=Decimal(2), input_tokens=30),
        CostLine(key="", usd=Decimal(9)),
    ]
    asked = used(front, *lines)
    for body in (
        {"usd": f"{3 / pace:.6f}", "period": "day"},
        {"usd": "6"},
        {"usd": "999999999", "period": "day"},
        {"scope": "task", "usd": "4", "period": "day"},
        {"scope": "task", "name": "t-8", "tokens": 60},
    ):
        assert (await front.me.put(URL, json=body)).status_code == 200
        (newest, *_) = (await front.me.get(URL)).json()["items"]
        match body:
            case {"scope": "task", "name": _}:
                assert (newest["used_tokens"], newest.get("most_used"), newest.get("reached_at")) == (30, None, None)
            case {"scope": "task"}:
                assert (newest["used_usd"], newest["most_used"]) == ("3", "t-7")
            case {"period": "day", "usd": "999999999"}:
                assert "reached_at" not in newest
            case {"period": "day"}:
                assert newest["used_usd"] == "6"
                reached = since + timedelta(days=0.5)
                assert abs(timestamp(newest["reached_at"]) - reached.timestamp()) < 1
            case _:
                assert timestamp(newest["reached_at"]) == NOW.timestamp()
    assert asked[0].since == since
    assert asked[0].until == since + timedelta(days=1)


async def test_a_list_shows_amounts_that_approvals_added_since_the_limit_was_set(front: RunningFront) -> None:
    used(front, CostLine(key="t-7", usd=Decimal(3)))
    set_at = (await front.me.put(URL, json={"scope": "task", "usd": "4", "soft_usd": "3", "period": "day"})).json()[
        "at"
    ]
    key = LimitKey(scope="task", period="day")
    record_id = spend_record_id(key, "t-7", bounds("day", NOW)[0])
    lifted = {"lifted_usd": "2.5", "lifted_tokens": 7, "warned": True}
    front.house.put("spend", record_id, lifted | {"limit_at": set_at})
    (listed,) = (await front.me.get(URL)).json()["items"]
    assert (listed["lifted_usd"], listed["lifted_tokens"], listed["warned"]) == ("2.5", 7, True)
    front.house.put("spend", record_id, lifted | {"limit_at": "2020-01-01T00:00:00Z"})
    (listed,) = (await front.me.get(URL)).json()["items"]
    assert (listed["lifted_usd"], listed["warned"]) == ("0", False)


def timestamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


async def test_many_limits_need_few_sums_and_a_named_one_is_found_beyond_them(front: RunningFront) -> None:
    asked: list[Costs] = []

    def reported(query: Costs) -> CostReport:
        asked.append(query)
        line = CostLine(key=query.key or "t-0", usd=Decimal(7 if query.key else 9))
        return CostReport(by=query.by, lines=(line,), truncated=query.key is None)

    front.house.costs = reported
    for n in range(3):
        for period in ("day", "total"):
            body = {"scope": "task", "name": f"t-{n}", "usd": "20", "period": period}
            assert (await front.me.put(URL, json=body)).status_code == 200
    assert (await front.me.put(URL, json={"scope": "task", "usd": "20"})).status_code == 200
    listed = (await front.me.get(URL)).json()["items"]
    assert {one.get("name"): one["used_usd"] for one in listed} == {"t-0": "7", "t-1": "7", "t-2": "7", None: "9"}
    assert sum(query.key is None for query in asked) == 2


async def test_limits_are_set_by_operators_in_words_that_make_sense(front: RunningFront) -> None:
    async with front.as_principal("reader", "read", "report") as reader:
        assert (await reader.put(URL, json={"usd": "1"})).status_code == 403
        assert (await reader.get(URL)).status_code == 200
    for body, field in (
        ({"period": "day"}, "usd or tokens"),
        ({"usd": "-1"}, "usd"),
        ({"scope": "planet", "usd": "1"}, "scope"),
        ({"scope": "project", "name": "x", "usd": "1"}, "name must be absent"),
        ({"scope": "task", "name": "a b", "usd": "1"}, "name"),
    ):
        refused = await front.me.put(URL, json=body)
        assert refused.status_code == 422
        assert field in refused.text


async def test_limits_are_set_by_persons_alone(front: RunningFront) -> None:
    async with front.as_principal("bot", "operate", "read", kind="agent") as bot:
        assert (await bot.put(URL, json={"usd": "100000"})).status_code == 403


async def test_a_project_has_so_many_limits_at_most(front: RunningFront) -> None:
    for n in range(LIMITS_MAX):
        limit = {"project": PROJECT, "scope": "task", "name": f"t-{n}", "period": "total", "tokens": 1}
        front.house.put("limits", f"limit-{n}", limit | {"by": "me", "at": NOW.isoformat()})
    refused = await front.me.put(URL, json={"scope": "task", "name": "t-more", "tokens": 1})
    assert (refused.status_code, "the maximum" in refused.text) == (422, True)


async def test_limits_of_the_organisation_are_set_by_an_administrator_of_all_projects(front: RunningFront) -> None:
    url = f"{URL}/organisation"
    body = {"name": "team", "projects": ["orders", "billing", "orders"], "usd": "50", "period": "month"}
    made = await front.me.put(url, json=body)
    assert (made.status_code, made.json()["projects"]) == (200, ["billing", "orders"])
    assert (await front.me.put(url, json=body | {"usd": "60"})).json()["usd"] == "60"
    assert (await front.me.put(url, json={"tokens": 10**9})).json()["scope"] == "organisation"
    for more in ({"projects": (PROJECT,)}, {"kind": "agent"}):
        async with front.as_principal(f"other-{len(more)}-{[*more]}", "admin", "operate", "read", **more) as other:
            assert (await other.put(url, json=body)).status_code == 403
            assert (await other.delete(url, params={"name": "team", "period": "month"})).status_code == 403
    async with front.as_principal("operator", "operate", "read") as operator:
        assert (await operator.put(url, json=body)).status_code == 403
    for wrong, field in (
        ({"usd": "1", "name": "team"}, "name and projects must be given together"),
        ({"name": "team", "projects": ["a"]}, "usd or tokens"),
        ({"usd": "1", "name": "team", "projects": ["A b"]}, "projects"),
        ({"usd": "-1"}, "usd"),
    ):
        refused = await front.me.put(url, json=wrong)
        assert (refused.status_code, field in refused.text) == (422, True)
    assert (await front.me.delete(url, params={"name": "team", "period": "month"})).json()["usd"] == "60"
    assert (await front.me.delete(url, params={"name": "team", "period": "month"})).status_code == 404


async def test_the_organisation_has_so_many_limits_at_most(front: RunningFront) -> None:
    for n in range(ORGANISATION_LIMITS_MAX):
        stored = {"scope": "organisation", "name": f"n{n}", "projects": ["a"], "tokens": 1, "by": "me"}
        front.house.put("organisation_limits", f"limit-{n}", stored | {"at": NOW.isoformat()})
    refused = await front.me.put(f"{URL}/organisation", json={"tokens": 1})
    assert (refused.status_code, "the maximum" in refused.text) == (422, True)


async def test_the_list_has_the_limits_of_the_organisation_as_far_as_the_caller_may_see(front: RunningFront) -> None:
    used(front)
    limit = StoredOrganisationLimit(usd=Decimal(20), period="day", by="ana", at=NOW)
    since, until = bounds("day", NOW)
    assert since is not None
    assert until is not None
    spent = Decimal(20) * Decimal((NOW - since) / (until - since)) * 2
    uses = (ProjectUse(project=PROJECT, usd=Decimal(1)), ProjectUse(project="x", usd=round(spent, 6) - 1, tokens=7))
    all_uses = OrganisationLimitUse(limit=limit, reached=False, uses=uses)
    front.house.organisation = OrganisationReport(everywhere=True, limits=(all_uses,))
    (shown,) = (await front.me.get(URL)).json()["items"]
    assert (shown["scope"], shown["used_tokens"], shown["most_used"], len(shown["uses"])) == ("organisation", 7, "x", 2)
    assert abs(timestamp(shown["reached_at"]) - (since + (until - since) / 2).timestamp()) < 5
    own = OrganisationLimitUse(limit=limit, reached=False, uses=uses[:1])
    front.house.organisation = OrganisationReport(everywhere=False, limits=(own,))
    (shown,) = (await front.me.get(URL)).json()["items"]
    assert (shown["used_usd"], shown["uses"], shown["reached"]) == ("1", [], False)
    assert not {"most_used", "reached_at"} & shown.keys(), "a forecast would tell what the others spend"
    front.house.organisation = OrganisationReport(everywhere=False, limits=(own.model_copy(update={"reached": True}),))
    (shown,) = (await front.me.get(URL)).json()["items"]
    assert (shown["reached"], timestamp(shown["reached_at"])) == (True, NOW.timestamp())


def run(api: ScriptedApi, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["limit", *words, *api.options()], env={"COLUMNS": "120"})
    return done.exit_code, " ".join(done.output.split())


STORED = {
    "project": "orders",
    "scope": "project",
    "period": "month",
    "usd": "20",
    "by": "me",
    "at": "2026-03-02T03:00Z",
}


def test_the_commands_send_the_given_options(api: ScriptedApi) -> None:
    api.on(f"PUT {URL}", (200, STORED), (200, STORED | {"scope": "agent", "tokens": 5000}))
    api.on(f"DELETE {URL}", (200, STORED | {"scope": "task", "name": "t-1", "period": "total"}))
    assert run(api, "set", "project", "--usd", "20", "--per", "month", "--project", "orders") == (
        0,
        "project orders: 20 USD a month",
    )
    assert run(api, "set", "agent", "--tokens", "5000") == (0, "each agent: 20 USD and 5,000 tokens a month")
    assert run(api, "remove", "task", "t-1") == (0, "removed: task t-1: 20 USD")
    said = [{name: value for name, value in asked.body.items() if value is not None} for asked in api.asked[:2]]
    assert said == [
        {"scope": "project", "period": "month", "usd": "20"},
        {"scope": "agent", "period": "total", "tokens": 5000},
    ]
    assert api.asked[2].params == {"scope": "task", "name": "t-1", "period": "total"}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("set", "planet", "--usd", "1"), "a scope is one of organisation, project, agent, session, task, not planet"),
        (("set", "project", "orders", "--usd", "1"), "--project selects the project"),
        (("set", "task", "t-1"), "a limit needs an amount: --usd, --tokens, --soft-usd or --soft-tokens"),
        (("set", "organisation", "--soft-usd", "1"), "a limit of the organisation has no soft amount"),
        (("set", "organisation", "team", "--usd", "1"), "a limit of some projects needs a name and --projects"),
        (("set", "organisation", "--usd", "1", "--projects", "a,b"), "needs a name and --projects"),
        (("set", "project", "--usd", "1", "--projects", "a"), "--projects is for limits of the organisation"),
        (("remove", "task", "--per", "week"), "a period is one of day, month, total, not week"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_sent(
    api: ScriptedApi, words: tuple[str, ...], problem: str
) -> None:
    code, shown = run(api, *words)
    assert (code, problem in shown, api.asked) == (2, True, [])


def test_the_commands_on_limits_of_the_organisation(api: ScriptedApi) -> None:
    limit = {"scope": "organisation", "period": "month", "usd": "50", "by": "me", "at": "2026-03-02T03:00Z"}
    named = limit | {"name": "team", "projects": ["a", "b"]}
    api.on(f"PUT {URL}/organisation", (200, limit | {"projects": []}), (200, named))
    api.on(f"DELETE {URL}/organisation", (200, named))
    seen = {"used_usd": "1", "used_tokens": 5, "uses": []}
    items = [
        limit | seen | {"everywhere": False, "reached": True},
        named | seen | {"everywhere": True, "reached": False},
    ]
    api.on(f"GET {URL}", (200, {"items": items, "next_cursor": None}))
    described = "organisation (all projects): 50 USD a month"
    assert run(api, "set", "organisation", "--usd", "50", "--per", "month") == (0, described)
    words = ("set", "organisation", "team", "--projects", "a, b", "--usd", "50", "--per", "month")
    assert run(api, *words) == (0, "organisation team (a, b): 50 USD a month")
    assert [each.body["projects"] for each in api.asked] == [[], ["a", "b"]]
    assert run(api, "remove", "organisation", "team", "--per", "month")[0] == 0
    code, shown = run(api, "list", "--project", "orders")
    assert code == 0
    assert "organisation (all projects, used here) month 1.00 of 50 - - - reached" in shown
    assert "organisation (team) month 1.00 of 50 - - - -" in shown


def test_the_list_shows_the_amount_used(api: ScriptedApi) -> None:
    items: list[dict[str, Any]] = [
        STORED | {"used_usd": "12.5", "used_tokens": 9000, "reached_at": "2026-03-20T10:00:00Z"},
        STORED
        | {"scope": "task", "usd": None, "tokens": 5000, "used_usd": "0", "used_tokens": 410}
        | {"most_used": "t-9"},
        STORED
        | {"usd": "2", "soft_usd": "1.5", "warned": True, "used_usd": "3", "used_tokens": 1}
        | {"lifted_usd": "2.50", "lifted_tokens": 0},
    ]
    api.on(f"GET {URL}", (200, {"items": items, "next_cursor": None}), (200, {"items": [], "next_cursor": None}))
    code, shown = run(api, "list", "--project", "orders")
    assert code == 0
    assert "project month 12.50 of 20 - - - 2026-03-20 10:00:00 UTC" in shown
    assert "task (each) month - 410 of 5,000 - t-9 -" in shown
    assert "project month 3.00 of 2 + 2.50 lifted - 1.5 USD, reached - -" in shown
    assert run(api, "list", "--project", "orders") == (0, "no limits")

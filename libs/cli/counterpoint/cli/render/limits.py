"""Limits as a table, with what was used of each."""

from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from counterpoint.cli.render.table import table
from counterpoint.proto.words import when

if TYPE_CHECKING:
    from rich.console import RenderableType


def limits_table(limits: Iterable[dict[str, Any]]) -> "RenderableType":
    """Return limits with what was used of each."""
    heads = ("limit", "per", "USD", "tokens", "soft", "most used", "reached")
    return table(heads, [_row(one) for one in limits], "no limits")


def dollars(amount: str) -> str:
    """Return an amount with two decimals, or as many as it needs for two significant digits."""
    value = Decimal(amount)
    digits = 2 if not value or abs(value) >= 1 else max(2, 1 - value.adjusted())
    return f"{value:,.{digits}f}"


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    usd = f"{dollars(one['used_usd'])} of {Decimal(one['usd']):f}" if one.get("usd") is not None else "-"
    tokens = f"{one['used_tokens']:,} of {one['tokens']:,}" if one.get("tokens") is not None else "-"
    if Decimal(one.get("lifted_usd") or 0):
        usd += f" + {Decimal(one['lifted_usd']):f} lifted"
    if one.get("lifted_tokens"):
        tokens += f" + {one['lifted_tokens']:,} lifted"
    soft = [f"{Decimal(one['soft_usd']):f} USD"] if one.get("soft_usd") is not None else []
    soft += [f"{one['soft_tokens']:,} tokens"] if one.get("soft_tokens") is not None else []
    soft += ["reached"] if one.get("warned") else []
    reached = f"{when(one['reached_at'])} UTC" if one.get("reached_at") else "-"
    if one["scope"] == "organisation":
        reached = "reached" if one["reached"] else reached
    return _scope(one), one["period"], usd, tokens, ", ".join(soft) or "-", one.get("most_used") or "-", reached


def _scope(one: dict[str, Any]) -> str:
    match one["scope"]:
        case "project":
            return "project"
        case "organisation":
            seen = "" if one["everywhere"] else ", used here"
            return f"organisation ({one.get('name') or 'all projects'}{seen})"
        case scope:
            return f"{scope} {one.get('name') or '(each)'}"

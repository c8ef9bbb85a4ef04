"""Forecast of when a limit is reached. Pure."""

from datetime import datetime
from decimal import Decimal

from counterpoint.proto.limits import OrganisationLimit, SpendLimit, bounds


def reached_at(limit: SpendLimit | OrganisationLimit, usd: Decimal, tokens: int, now: datetime) -> datetime | None:
    """Return when a limit is reached at the pace of the period so far; None if not before its end."""
    hard = [share for share in (_share(usd, limit.usd), _share(tokens, limit.tokens)) if share is not None]
    if not hard and isinstance(limit, SpendLimit):
        soft = (_share(usd, limit.soft_usd), _share(tokens, limit.soft_tokens))
        hard = [share for share in soft if share is not None]
    share = max(hard)
    if share >= 1:
        return now
    since, until = bounds(limit.period, now)
    if since is None or until is None or float(share) <= (now - since) / (until - since):
        return None
    return since + (now - since) / float(share)


def _share(used: Decimal | int, most: Decimal | int | None) -> Decimal | None:
    """Return the share that is used of an amount: all of nothing."""
    if most is None:
        return None
    return Decimal(used) / Decimal(most) if most else Decimal(1)

"""Set and remove the limits of a store."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from counterpoint.client import Memory, delete, put, record
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.limits import LimitKey, OrganisationLimitKey, StoredLimit, StoredOrganisationLimit
from counterpoint.proto.memory import Commit, List
from counterpoint.router.api.context import RequestContext

L = TypeVar("L", StoredLimit, StoredOrganisationLimit)


@dataclass(frozen=True)
class LimitStore(Generic[L]):
    """A store of at most `limits_max` limits of `owner`. Errors name the field `field`."""

    store: str
    model: type[L]
    limits_max: int
    owner: str
    field: str

    async def set(self, context: RequestContext, limit: LimitKey | OrganisationLimitKey, **fields: str) -> L:
        """Store a limit with the caller and more fields, in place of one with the same key. Raises `Permanent`."""

        async def changed(memory: Memory) -> tuple[L, Commit]:
            (known,) = await memory.query(List(store=self.store, limit=self.limits_max))
            item = next((each for each in known.items if each.id == limit.record_id), None)
            if item is None and len(known.items) >= self.limits_max:
                problem = f"{self.owner} has {self.limits_max} limits, the maximum; remove one first"
                raise Permanent(ErrorCode.INVALID, (Problem(field=self.field, problem=problem),))
            author = {"by": context.principal.name, "at": memory.now}
            stored = self.model.model_validate(limit.model_dump() | fields | author)
            return stored, Commit(writes=(put(self.store, limit.record_id, stored, existing=item),))

        return await context.commit(changed)

    async def remove(self, context: RequestContext, key: LimitKey | OrganisationLimitKey) -> L:
        """Remove a limit and return it. Raises `Permanent` `not_found`."""

        async def removed(memory: Memory) -> tuple[L, Commit]:
            item = await memory.get(self.store, key.record_id)
            if item is None:
                raise Permanent(
                    ErrorCode.NOT_FOUND, (Problem(field=self.field, problem="has no limit of this name and period"),)
                )
            return record(item, self.model), Commit(writes=(delete(item),))

        return await context.commit(removed)

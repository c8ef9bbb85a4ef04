"""Which models of embeddings are in use: a fact of the record, for the whole installation.

One model for all projects, because the shared project is searched with every other one, and vectors of two models are
never compared. Beside the active one there may be another: the `next`, whose vectors are being made, or the one
`before`, whose vectors are kept to go back to. What the settings name is where a house without a vector begins.
"""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import structlog

from counterpoint.memory.embedding import folder
from counterpoint.memory.embedding.files import GRAPHS
from counterpoint.memory.embedding.model import EmbeddingModel
from counterpoint.memory.record.database import Database
from counterpoint.memory.search.vectors import SearchEngine
from counterpoint.proto.errors import ErrorCode, Permanent, Problem, Transient

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

log = structlog.get_logger()

MAX_DIMENSIONS = 16_000
"""More the record cannot keep."""
_REMOTE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._:/+-]{0,199})(@(?P<dimensions>[1-9][0-9]{0,4}))?")
_NOW = "SELECT active, dimensions, other, other_dimensions, other_is FROM models"
_FIRST = """
INSERT INTO models (active, dimensions) VALUES ($1, $2)
ON CONFLICT (one) DO UPDATE SET active = excluded.active, dimensions = excluded.dimensions
"""
_BESIDE = "UPDATE models SET other = $1, other_dimensions = $2, other_is = $3, since = now()"
_TURN = """
UPDATE models
SET active = other, dimensions = other_dimensions, other = active, other_dimensions = dimensions, other_is = $1,
    since = now()
"""
_OURS = "SELECT FROM lease WHERE shard = '0' AND epoch = $1 FOR SHARE"
_PROJECTS = "SELECT project FROM projects ORDER BY project"
_FENCE = "SELECT set_config('counterpoint.project', $1, true)"
_ANY = "SELECT EXISTS (SELECT FROM vectors WHERE project = $1)"
_GAP = """
SELECT EXISTS (
    SELECT FROM vectors v WHERE project = $1 AND NOT EXISTS (
        SELECT FROM meanings m WHERE m.row = v.row AND m.model = $2 AND m.version = v.version))
"""

Beside = Literal["next", "before"]


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model by its name, and how long its vectors are; None where its name alone says so."""

    name: str
    dimensions: int | None = None


class ModelRegistry:
    """Knows the models in use, and changes them. `make` makes one from its name; `epoch` is the lease's.

    `changed` is called after every change, and `search` uses what there is then.
    """

    def __init__(
        self,
        database: Database,
        search: SearchEngine,
        make: Callable[[ModelName], EmbeddingModel],
        epoch: Callable[[], int],
    ) -> None:
        self._database = database
        self._search = search
        self._make = make
        self._epoch = epoch
        self.beside: Beside | None = None
        self.in_doubt = False
        """A change was begun, and nobody knows whether the record has it."""

    async def begin(self) -> None:
        """Use what the record says, before anything is answered. Where nothing is embedded yet, it is the model that
        the settings name. Raises `Permanent` for a model that this process cannot make."""
        configured = self._search.active
        async with self._database.connection() as connection, connection.transaction():
            row = await connection.fetchrow(_NOW)
            if row is None or (row["other"] is None and not await _any(connection)):
                await connection.execute(_FIRST, configured.model_id, configured.dimensions)
        await self.learn()
        if self._search.model_id != configured.model_id:
            log.warning("embedding.not_as_configured", configured=configured.model_id, active=self._search.model_id)

    async def learn(self) -> None:
        """Use what the record says. Raises likewise."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_NOW)
        if row is not None:
            other = None if row["other"] is None else self.named(row["other"])
            self._use(self.named(row["active"]), other, row["other_is"])
        self.in_doubt = False

    def named(self, text: str) -> EmbeddingModel:
        """A model by its name: one in the house, `file:DIR`, the id of such a one, or a LiteLLM name with `@` and the
        length of its vectors.

        Raises `Permanent` `invalid`, and for a folder what `FolderEmbedder` raises. Loads the model of a folder.
        """
        for known in self._search.models:
            if known.model_id == text:
                return known
        if text in GRAPHS or folder.ID.fullmatch(text):
            return self._make(ModelName(text))
        if text.startswith(folder.SCHEME):
            own = self._make(ModelName(text))
            return next((known for known in self._search.models if known.model_id == own.model_id), own)
        remote = _REMOTE.fullmatch(text)
        dimensions = int(remote["dimensions"]) if remote and remote["dimensions"] else None
        if remote is None or (dimensions is None and "/" not in text) or (dimensions or 0) > MAX_DIMENSIONS:
            known_here = " or ".join(GRAPHS)
            problem = (
                f"{text} is not a built-in model ({known_here}), file:/DIR, provider/model or provider/model@dimensions"
            )
            raise Permanent(ErrorCode.INVALID, (Problem(field="model", problem=problem),))
        return self._make(ModelName(remote["name"], dimensions))

    async def put_beside(self, model: EmbeddingModel) -> None:
        """From now on vectors of this model are made beside; those of another one beside are forgotten."""
        async with self._changing() as connection:
            await connection.execute(_BESIDE, model.model_id, model.dimensions, "next")
            self.in_doubt = True
        self._use(self._search.active, model, "next")

    async def forget(self) -> None:
        """From now on there is none beside the active one."""
        async with self._changing() as connection:
            await connection.execute(_BESIDE, None, None, None)
            self.in_doubt = True
        self._use(self._search.active, None, None)

    async def turn(self, leaves: Beside) -> bool:
        """Search by the other model, in one moment for all projects; the active one becomes the other, as `leaves`.

        False, and nothing is changed, where a record has no vector of it yet.
        """
        active, other = self._search.active, self._search.other
        assert other is not None
        if not await self._complete(other.model_id):
            return False
        async with self._changing() as connection:
            # No commit is under way that writes vectors, and none begins before this one ends.
            for row in await connection.fetch(_PROJECTS):
                await connection.execute(_FENCE, row["project"])
                if await connection.fetchval(_GAP, row["project"], other.model_id):
                    return False
            await connection.execute(_TURN, leaves)
            self.in_doubt = True
        self._use(other, active, leaves)
        return True

    async def _complete(self, model: str) -> bool:
        for project in await self.projects():
            async with self._database.reading(project) as connection:
                if await connection.fetchval(_GAP, project, model):
                    return False
        return True

    async def projects(self) -> list[str]:
        """All that there are."""
        async with self._database.connection() as connection:
            return [row["project"] for row in await connection.fetch(_PROJECTS)]

    def _use(self, active: EmbeddingModel, other: EmbeddingModel | None, beside: Beside | None) -> None:
        self.beside = beside
        self.in_doubt = False
        self._search.use(active, other)
        log.info("embedding.models", active=active.model_id, other=other and other.model_id, other_is=beside)

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator["Connection"]:
        """A transaction of the active process in which no commit writes a vector."""
        async with self._database.connection() as connection, connection.transaction():
            if await connection.fetchrow(_OURS, self._epoch()) is None:
                raise Transient("another memory process is active")
            await connection.execute("SELECT FROM models FOR UPDATE")
            yield connection


async def _any(connection: "Connection") -> bool:
    for row in await connection.fetch(_PROJECTS):
        await connection.execute(_FENCE, row["project"])
        if await connection.fetchval(_ANY, row["project"]):
            return True
    return False

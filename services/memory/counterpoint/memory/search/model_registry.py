"""Model registry: the embedding models in use, as the record has them, for the whole installation.

All projects use one model, because the shared project is searched with every other one, and vectors of two models are
never compared. Beside the active model there may be another: the `next`, whose vectors are being added, or the one
`before`, whose vectors are kept for a rollback. The model of the settings applies as long as there are no vectors.
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
from counterpoint.memory.record.projects import all_projects, set_project
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.memory.search.vectors import SearchEngine
from counterpoint.proto.errors import ErrorCode, Permanent, Problem, Transient

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

log = structlog.get_logger()

MAX_DIMENSIONS = 16_000
"""Maximum number of dimensions that the record can store."""
_REMOTE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._:/+-]{0,199})(@(?P<dimensions>[1-9][0-9]{0,4}))?")
_SQL = load_statements(__package__)

OtherModel = Literal["next", "before"]


@dataclass(frozen=True, slots=True)
class ModelName:
    """Name of a model, and its dimensions; None if they follow from the name."""

    name: str
    dimensions: int | None = None


class ModelRegistry:
    """Knows and changes the models in use. `make` constructs one from its name; `epoch` is that of the lease.

    `search` uses the models after every change.
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
        self.other_is: OtherModel | None = None
        self.outcome_unknown = False
        """A change was begun, and its outcome is unknown."""

    async def begin(self) -> None:
        """Load the models before requests are answered. If nothing is embedded yet, the model of the settings is used.
        Raises `Permanent` for a model that this process cannot construct."""
        configured = self._search.active
        async with self._database.connection() as connection, connection.transaction():
            row = await connection.fetchrow(_SQL["models"])
            if row is None or (row["other"] is None and not await _any(connection)):
                await connection.execute(_SQL["set_first_model"], configured.model_id, configured.dimensions)
        await self.load()
        if self._search.model_id != configured.model_id:
            log.warning("embedding.not_as_configured", configured=configured.model_id, active=self._search.model_id)

    async def load(self) -> None:
        """Load the models from the record. Raises as `begin` does."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_SQL["models"])
        if row is not None:
            other = None if row["other"] is None else self.model_of(row["other"])
            self._use(self.model_of(row["active"]), other, row["other_is"])
        self.outcome_unknown = False

    def model_of(self, text: str) -> EmbeddingModel:
        """Return a model by its name: a built-in one, `file:DIR`, the id of a model in a folder, or a LiteLLM name with
        `@` and its dimensions.

        Raises `Permanent` `invalid`, and for a folder the errors of `FolderEmbedder`. Loads the model of a folder.
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

    async def add_other(self, model: EmbeddingModel) -> None:
        """Add a model beside the active one. Vectors of a former other model are no longer kept."""
        async with self._changing() as connection:
            await connection.execute(_SQL["set_other_model"], model.model_id, model.dimensions, "next")
            self.outcome_unknown = True
        self._use(self._search.active, model, "next")

    async def remove_other(self) -> None:
        """Remove the model beside the active one."""
        async with self._changing() as connection:
            await connection.execute(_SQL["set_other_model"], None, None, None)
            self.outcome_unknown = True
        self._use(self._search.active, None, None)

    async def switch(self, leaves: OtherModel) -> bool:
        """Switch searches to the other model, at once for all projects; the active one becomes the other, as `leaves`.

        Return False without a change if a record has no vector of it yet.
        """
        active, other = self._search.active, self._search.other
        assert other is not None
        if not await self._complete(other.model_id):
            return False
        async with self._changing() as connection:
            # No commit that writes vectors is under way, and none begins before the end of this transaction.
            for project in await all_projects(connection):
                await set_project(connection, project, in_transaction=True)
                if await connection.fetchval(_SQL["lacks_vectors"], project, other.model_id):
                    return False
            await connection.execute(_SQL["switch_models"], leaves)
            self.outcome_unknown = True
        self._use(other, active, leaves)
        return True

    async def _complete(self, model: str) -> bool:
        for project in await self._database.projects():
            async with self._database.reading(project) as connection:
                if await connection.fetchval(_SQL["lacks_vectors"], project, model):
                    return False
        return True

    def _use(self, active: EmbeddingModel, other: EmbeddingModel | None, other_is: OtherModel | None) -> None:
        self.other_is = other_is
        self.outcome_unknown = False
        self._search.use(active, other)
        log.info("embedding.models", active=active.model_id, other=other and other.model_id, other_is=other_is)

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator["Connection"]:
        """Open a transaction of the active process in which no commit writes a vector."""
        async with self._database.connection() as connection, connection.transaction():
            if await connection.fetchrow(_SQL["lock_lease"], self._epoch()) is None:
                raise Transient("another memory process is active")
            await connection.execute("SELECT FROM models FOR UPDATE")
            yield connection


async def _any(connection: "Connection") -> bool:
    for project in await all_projects(connection):
        await set_project(connection, project, in_transaction=True)
        if await connection.fetchval(_SQL["has_vectors"], project):
            return True
    return False

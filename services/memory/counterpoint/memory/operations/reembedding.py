"""Re-embedding: a change of the embedding model during operation.

Missing vectors of the models in use are added, project by project, a few rows at a time. Missing rows are read from the
record each time, so that the next process continues where one was killed. Commits embed by both models meanwhile. When
nothing is missing, searches switch to the other model at once, and may switch back likewise.
"""

import asyncio
import secrets
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import asyncpg
import structlog

from counterpoint.memory.commit.committer import Committer
from counterpoint.memory.commit.pipeline import EmbeddingPipeline
from counterpoint.memory.embedding.model import EmbeddingModel, TextContext
from counterpoint.memory.projection.projections import Tiers
from counterpoint.memory.record.canonical import canonical
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.memory.search.hybrid import EXACT_ROWS
from counterpoint.memory.search.model_registry import ModelRegistry
from counterpoint.memory.search.scan import index_of, indexed_as
from counterpoint.memory.search.vectors import SearchEngine
from counterpoint.proto.commands import ChangeEmbeddingModel
from counterpoint.proto.errors import CounterpointError, Denied, ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Origin
from counterpoint.proto.upcast import upcast

log = structlog.get_logger()

BATCH = 64
"""Texts embedded and stored at a time."""
_RETRY_S = (1.0, 5.0, 30.0)
_PROBE_S = 8.0
"""Timeout of a model's first answer, in seconds: the caller waits for ten."""
_REPORTED = 20
"""Maximum number of refused records in a report."""
_DELETE_BATCH = 2000
_SWITCH_ATTEMPTS = 5
"""Attempts at a switch while commits leave vectors to add."""
_REFUSED = frozenset({ErrorCode.EMBEDDING_INVALID, ErrorCode.REFUSED})
"""Error codes of a model that concern one text, not all."""

_SQL = load_statements(__package__)


@dataclass(eq=False)
class Reembedding:
    """Adds missing vectors, and executes changes of the embedding model."""

    database: Database
    models: ModelRegistry
    search: SearchEngine
    embeddings: EmbeddingPipeline
    committer: Committer
    tiers: Tiers
    _lock: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _wake: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _problem: str | None = field(init=False, default=None)
    _filled: int = field(init=False, default=0)
    _took_s: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self._wake.set()

    def applied(self, steps: Iterable[CommitPlan]) -> None:
        """Take note of applied commits: vectors that one of them lacks are added soon."""
        for step in steps:
            for row in step.vectors:
                if any(model.model_id not in row.embeddings for model in self.search.models):
                    self._wake.set()
                    return

    async def run(self) -> None:
        """Add missing vectors until cancelled, first those that the previous process left."""
        failed = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                if self.models.outcome_unknown:
                    async with self._lock:
                        await self.models.load()
                await self.tiers.keep_models()
                await self._delete_unused()
                await self._fill_all()
                self._problem, failed = None, 0
            except (CounterpointError, asyncpg.PostgresError) as error:
                self._problem = str(error)
                wait_s = _RETRY_S[min(failed, len(_RETRY_S) - 1)]
                log.warning("reembedding.waiting", reason=str(error), wait_s=wait_s)
                failed += 1
                asyncio.get_running_loop().call_later(wait_s, self._wake.set)

    async def act(self, caller: str, origin: Origin, command: ChangeEmbeddingModel) -> dict[str, Any]:
        """Execute a change and return its progress. Raises `Permanent` `invalid`, `conflict` or `not_found`."""
        try:
            async with self._lock:
                if self.models.outcome_unknown:
                    await self.models.load()
                await self._act(caller, origin, command)
        finally:
            # Also when the reply to a change is lost: the record is then read again.
            self._wake.set()
        return await self.status()

    async def _act(self, caller: str, origin: Origin, command: ChangeEmbeddingModel) -> None:
        match command.act:
            case "begin":
                await self._begin(caller, origin, command)
            case "switch" | "rollback":
                await self._switch(caller, origin, command)
            case "drop":
                other = await self._other(command)
                await self._audit(caller, origin, command, other.model_id)
                await self.models.remove_other()

    async def status(self) -> dict[str, Any]:
        """Return the models in use, and the progress of the other model's vectors."""
        active, other = self.search.active, self.search.other
        report: dict[str, Any] = {"active": active.model_id, "dimensions": active.dimensions, "state": "none"}
        watched = other or active
        rows = vectors = refused = 0
        refused_records: list[dict[str, Any]] = []
        unindexed = []
        for project in await self.database.projects():
            async with self.database.reading(project) as connection:
                index = index_of(project, watched.model_id)
                done = await connection.fetchrow(_SQL["embedding_progress"], project, watched.model_id, index)
                assert done is not None
                if done["refused"] and len(refused_records) < _REPORTED:
                    refusals = await connection.fetch(
                        _SQL["refused_vectors"], project, watched.model_id, _REPORTED - len(refused_records)
                    )
                    refused_records += [{"project": project, **dict(row)} for row in refusals]
            rows, vectors, refused = rows + done["rows"], vectors + done["vectors"], refused + done["refused"]
            if done["rows"] > EXACT_ROWS and indexed_as(watched.dimensions) and not done["indexed"]:
                unindexed.append(project)
        report |= {"vectors": vectors - refused, "of": rows, "refused": refused, "refused_records": refused_records}
        report |= {"unindexed": unindexed, "problem": self._problem}
        if other is not None:
            state = "kept" if self.models.other_is == "before" else "ready" if vectors >= rows else "filling"
            report |= {"other": other.model_id, "other_dimensions": other.dimensions, "state": state}
            report["per_s"] = round(self._filled / self._took_s, 1) if self._took_s else None
        return report

    async def _other(self, command: ChangeEmbeddingModel) -> EmbeddingModel:
        other = self.search.other
        named_model = other if command.model is None else await asyncio.to_thread(self.models.model_of, command.model)
        if other is None or named_model is None or named_model.model_id != other.model_id:
            known = f"the only other model is {other.model_id}" if other else "there is no other model"
            raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="model", problem=known),))
        return other

    async def _begin(self, caller: str, origin: Origin, command: ChangeEmbeddingModel) -> None:
        if command.model is None:
            raise Permanent(ErrorCode.INVALID, (Problem(field="model", problem="is required"),))
        model = await asyncio.to_thread(self.models.model_of, command.model)
        other = self.search.other
        if model.model_id == self.search.model_id:
            raise Permanent(
                ErrorCode.CONFLICT, (Problem(field="model", problem=f"{model.model_id} is already active"),)
            )
        if other is not None and model.model_id == other.model_id:
            if self.models.other_is == "before":
                problem = f"{model.model_id} is the previous model: roll back to it"
                raise Permanent(ErrorCode.CONFLICT, (Problem(field="model", problem=problem),))
            return
        if other is not None and self.models.other_is == "next":
            problem = f"the change to {other.model_id} is in progress: drop it first"
            raise Permanent(ErrorCode.CONFLICT, (Problem(field="model", problem=problem),))
        # A model that cannot be called is refused before anything changes.
        try:
            async with asyncio.timeout(_PROBE_S):
                await model.embed(["ready?"], TextContext(origin.project, 0, "reembedding"))
        except TimeoutError as error:
            raise Transient(f"{model.model_id} does not respond") from error
        await self._audit(caller, origin, command, model.model_id)
        self._filled, self._took_s = 0, 0.0
        await self.models.add_other(model)

    async def _switch(self, caller: str, origin: Origin, command: ChangeEmbeddingModel) -> None:
        other = await self._other(command)
        back = command.act == "rollback"
        if back != (self.models.other_is == "before"):
            problem = f"{other.model_id} is {'not active yet' if back else 'the previous model'}"
            problem += ": switch to it" if back else ": roll back to it"
            raise Permanent(ErrorCode.CONFLICT, (Problem(field="model", problem=problem),))
        missing = await self._missing(other.model_id)
        if missing > BATCH:
            problem = f"{missing} records have no vector of {other.model_id} yet"
            raise Permanent(ErrorCode.CONFLICT, (Problem(field="model", problem=problem),))
        waiting = [] if command.unindexed else (await self.status())["unindexed"]
        if waiting:
            problem = f"{', '.join(waiting)}: no index of {other.model_id} yet; the index job creates it"
            raise Permanent(ErrorCode.CONFLICT, (Problem(field="unindexed", problem=problem),))
        await self._audit(caller, origin, command, other.model_id)
        self.embeddings.ask_again(other.model_id)
        for _ in range(_SWITCH_ATTEMPTS):
            if await self.models.switch("next" if back else "before"):
                return
            await self._fill_model(other)
        problem = f"commits write faster than {other.model_id} embeds: try again"
        raise Permanent(ErrorCode.CONFLICT, (Problem(field="model", problem=problem),))

    async def _missing(self, model: str) -> int:
        missing = 0
        for project in await self.database.projects():
            async with self.database.reading(project) as connection:
                done = await connection.fetchrow(_SQL["embedding_progress"], project, model, "")
            assert done is not None
            missing += max(0, done["rows"] - done["vectors"])
        return missing

    async def _audit(self, caller: str, origin: Origin, command: ChangeEmbeddingModel, model: str) -> None:
        """Write the command and its principal into the audit log before it is executed."""
        commit_id = new_id()
        leaf = {
            "commit": commit_id,
            "project": origin.project,
            "reembed": command.act,
            "model": model,
            "active": self.search.model_id,
            "service": caller,
            "message": origin.message_id,
            "principal": origin.principal,
            "task": None,
            "at": datetime.now(UTC).isoformat(),
        }
        plan = CommitPlan(
            project=origin.project, commit_id=commit_id, consumer=caller, message_id="", step="", last=False, fence=0,
            task_id=None, task_version=None, ended_ok=True, audit=canonical(leaf),
            salt=secrets.token_bytes(16), reads=None,
        )  # fmt: skip
        await self.committer.apply(plan)

    async def _fill_all(self) -> None:
        for model in self.search.models:
            await self._fill_model(model)

    async def _fill_model(self, model: EmbeddingModel) -> None:
        for project in await self.database.projects():
            after = 0
            while self.search.holds(model.model_id):
                started = time.monotonic()
                async with self.database.reading(project) as connection:
                    rows = await connection.fetch(_SQL["missing_vectors"], project, model.model_id, after, BATCH)
                if not rows:
                    break
                await self._add_vectors(project, model, rows)
                after = rows[-1]["row"]
                self._filled += len(rows)
                self._took_s += time.monotonic() - started

    async def _add_vectors(self, project: str, model: EmbeddingModel, rows: Sequence[Any]) -> None:
        """Add vectors of some rows, one label at a time, because a remote model may not receive every label."""
        by_label: defaultdict[int, list[Any]] = defaultdict(list)
        for row in rows:
            by_label[row["label"]].append(row)
        for label, same_label in by_label.items():
            texts = [self._text(row) for row in same_label]
            vectors_or_reasons = await self._embedded(project, model, texts, label)
            async with self.database.writing(project) as connection:
                await connection.execute(
                    _SQL["add_vectors"],
                    project,
                    model.model_id,
                    [row["row"] for row in same_label],
                    [row["version"] for row in same_label],
                    [None if isinstance(each, str) else str(each.tolist()) for each in vectors_or_reasons],
                    [each if isinstance(each, str) else None for each in vectors_or_reasons],
                )

    def _text(self, row: Mapping[str, Any]) -> str:
        return self.embeddings.text(row["store"], upcast(row["store"], row["schema_version"], row["body"])[1])

    async def _embedded(self, project: str, model: EmbeddingModel, texts: Sequence[str], label: int) -> list[Any]:
        """Return the vector of each text, or the reason why the model has none."""
        try:
            return (await self.embeddings.of(project, texts, label, "reembedding", model=model.model_id))[0]
        except Denied as refused:
            if refused.rule != ErrorCode.LABEL:
                raise
            return ["label"] * len(texts)
        except Permanent as refused:
            if refused.code not in _REFUSED:
                raise
            if len(texts) == 1:
                return [refused.code]
        return [each for text in texts for each in await self._embedded(project, model, [text], label)]

    async def _delete_unused(self) -> None:
        """Delete the vectors of models that are not in use."""
        for project in await self.database.projects():
            deleted = ""
            while deleted != "DELETE 0":
                async with self.database.writing(project) as connection:
                    deleted = await connection.execute(_SQL["delete_vectors_of_unused_models"], project, _DELETE_BATCH)
            async with self.database.writing(project) as connection:
                await connection.execute(_SQL["delete_embeddings_of_unused_models"], project)

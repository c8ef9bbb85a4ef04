"""Changing the model of embeddings while all goes on: vectors of another model are made beside those that are searched.

Whatever lacks a vector of a model in use is filled in, project by project, a few rows at a time: what is missing is
read from the record each time, so that the next process goes on wherever one was killed. Commits embed by both models
meanwhile. When nothing is missing, the other model is searched by from one moment on, and leads back likewise.
"""

import asyncio
import secrets
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
"""Texts embedded and kept at a time."""
_RETRY_S = (1.0, 5.0, 30.0)
_PROBE_S = 8.0
"""Timeout of a model's first answer, in seconds: the caller waits for ten."""
_NAMED = 20
"""Refused records that a report names."""
_FORGET_AT_ONCE = 2000
_TURNS = 5
"""Attempts at a switch while commits leave vectors to fill in."""
_REFUSED = frozenset({ErrorCode.EMBEDDING_INVALID, ErrorCode.REFUSED})
"""Error codes of a model that concern one text, not all."""

_GAPS = """
SELECT v.row, v.store, v.id, v.version, v.label, r.schema_version, r.body FROM vectors v
CROSS JOIN LATERAL (
    SELECT schema_version, body FROM records
    WHERE project = $1 AND store = v.store AND id = v.id AND version = v.version AND body IS NOT NULL LIMIT 1) AS r
WHERE v.project = $1 AND v.row > $3
    AND NOT EXISTS (SELECT FROM meanings m WHERE m.row = v.row AND m.model = $2 AND m.version = v.version)
ORDER BY v.row LIMIT $4
"""
# A row that a commit is writing now is left to that one; a version that is none any more gets no vector.
_LAY = """
INSERT INTO meanings (row, model, project, store, version, label, embedding, refused)
SELECT v.row, $2, v.project, v.store, v.version, v.label, made.embedding::vector, made.refused
FROM unnest($3::bigint[], $4::int[], $5::text[], $6::text[]) AS made (row, version, embedding, refused)
CROSS JOIN LATERAL (
    SELECT * FROM vectors WHERE row = made.row AND project = $1 AND version = made.version
    FOR SHARE SKIP LOCKED) AS v
ON CONFLICT (row, model) DO NOTHING
"""
_DONE = """
SELECT (SELECT coalesce(sum(rows), 0)::bigint FROM corpora WHERE project = $1) AS rows,
    (SELECT count(*) FROM meanings WHERE project = $1 AND model = $2) AS vectors,
    (SELECT count(*) FROM meanings WHERE project = $1 AND model = $2 AND refused IS NOT NULL) AS refused,
    EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass($3) AND indisvalid) AS indexed
"""
_NOT_ASKED = """
SELECT v.store, v.id, m.refused AS reason FROM meanings m JOIN vectors v ON v.row = m.row AND v.project = $1
WHERE m.project = $1 AND m.model = $2 AND m.refused IS NOT NULL ORDER BY m.row LIMIT $3
"""
_FORGET = """
DELETE FROM meanings WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM meanings
    WHERE project = $1 AND model NOT IN (SELECT unnest(ARRAY[active, coalesce(other, active)]) FROM models) LIMIT $2))
"""
_FORGET_KNOWN = """
DELETE FROM embeddings
WHERE project = $1 AND model NOT IN (SELECT unnest(ARRAY[active, coalesce(other, active)]) FROM models)
"""


class Reembedding:
    """Fills in what is missing, and does what an operator asks for."""

    def __init__(
        self,
        database: Database,
        models: ModelRegistry,
        search: SearchEngine,
        embeddings: EmbeddingPipeline,
        committer: Committer,
        tiers: Tiers,
    ) -> None:
        self._database = database
        self._models = models
        self._search = search
        self._embeddings = embeddings
        self._committer = committer
        self._tiers = tiers
        self._alone = asyncio.Lock()
        self._wake = asyncio.Event()
        self._wake.set()
        self._problem: str | None = None
        self._filled, self._took_s = 0, 0.0

    def applied(self, steps: Iterable[CommitPlan]) -> None:
        """Steps were committed: what one of them lacks is filled in soon."""
        for step in steps:
            for row in step.vectors:
                if any(model.model_id not in row.embeddings for model in self._search.models):
                    self._wake.set()
                    return

    async def run(self) -> None:
        """Fill in what is missing, for ever; first what another process has left."""
        failed = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                if self._models.in_doubt:
                    async with self._alone:
                        await self._models.learn()
                await self._tiers.keep()
                await self._tidy()
                await self._fill()
                self._problem, failed = None, 0
            except (CounterpointError, asyncpg.PostgresError) as error:
                self._problem = str(error)
                wait_s = _RETRY_S[min(failed, len(_RETRY_S) - 1)]
                log.warning("reembedding.waiting", reason=str(error), wait_s=wait_s)
                failed += 1
                asyncio.get_running_loop().call_later(wait_s, self._wake.set)

    async def act(self, caller: str, origin: Origin, asked: ChangeEmbeddingModel) -> dict[str, Any]:
        """Execute a change and report how far it has come. Raises `Permanent` `invalid`, `conflict` or `not_found`."""
        try:
            async with self._alone:
                if self._models.in_doubt:
                    await self._models.learn()
                await self._act(caller, origin, asked)
        finally:
            # Also where the answer to a change is lost: whether the record has it is found out then.
            self._wake.set()
        return await self.status()

    async def _act(self, caller: str, origin: Origin, asked: ChangeEmbeddingModel) -> None:
        match asked.act:
            case "begin":
                await self._begin(caller, origin, asked)
            case "switch" | "rollback":
                await self._turn(caller, origin, asked)
            case "drop":
                other = await self._other(asked)
                await self._noted(caller, origin, asked, other.model_id)
                await self._models.forget()

    async def status(self) -> dict[str, Any]:
        """Which models are in use, and how far the other one's vectors have come."""
        active, other = self._search.active, self._search.other
        report: dict[str, Any] = {"active": active.model_id, "dimensions": active.dimensions, "state": "none"}
        watched = other or active
        rows = vectors = refused = 0
        named: list[dict[str, Any]] = []
        unindexed = []
        for project in await self._models.projects():
            async with self._database.reading(project) as connection:
                index = index_of(project, watched.model_id)
                done = await connection.fetchrow(_DONE, project, watched.model_id, index)
                assert done is not None
                if done["refused"] and len(named) < _NAMED:
                    not_asked = await connection.fetch(_NOT_ASKED, project, watched.model_id, _NAMED - len(named))
                    named += [{"project": project, **dict(row)} for row in not_asked]
            rows, vectors, refused = rows + done["rows"], vectors + done["vectors"], refused + done["refused"]
            if done["rows"] > EXACT_ROWS and indexed_as(watched.dimensions) and not done["indexed"]:
                unindexed.append(project)
        report |= {"vectors": vectors - refused, "of": rows, "refused": refused, "refused_records": named}
        report |= {"unindexed": unindexed, "problem": self._problem}
        if other is not None:
            state = "kept" if self._models.beside == "before" else "ready" if vectors >= rows else "filling"
            report |= {"other": other.model_id, "other_dimensions": other.dimensions, "state": state}
            report["per_s"] = round(self._filled / self._took_s, 1) if self._took_s else None
        return report

    async def _other(self, asked: ChangeEmbeddingModel) -> EmbeddingModel:
        other = self._search.other
        meant = other if asked.model is None else await asyncio.to_thread(self._models.named, asked.model)
        if other is None or meant is None or meant.model_id != other.model_id:
            known = f"the only other model is {other.model_id}" if other else "there is no other model"
            raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="model", problem=known),))
        return other

    async def _begin(self, caller: str, origin: Origin, asked: ChangeEmbeddingModel) -> None:
        if asked.model is None:
            raise Permanent(ErrorCode.INVALID, (Problem(field="model", problem="is required"),))
        model = await asyncio.to_thread(self._models.named, asked.model)
        other = self._search.other
        if model.model_id == self._search.model_id:
            raise Permanent(
                ErrorCode.CONFLICT, (Problem(field="model", problem=f"{model.model_id} is already active"),)
            )
        if other is not None and model.model_id == other.model_id:
            if self._models.beside == "before":
                problem = f"{model.model_id} is the previous model: roll back to it"
                raise Permanent(ErrorCode.CONFLICT, (Problem(field="model", problem=problem),))
            return
        if other is not None and self._models.beside == "next":
            problem = f"the change to {other.model_id} is in progress: drop it first"
            raise Permanent(ErrorCode.CONFLICT, (Problem(field="model", problem=problem),))
        # Whether it can be asked at all is found out before anything is begun.
        try:
            async with asyncio.timeout(_PROBE_S):
                await model.embed(["ready?"], TextContext(origin.project, 0, "reembedding"))
        except TimeoutError as error:
            raise Transient(f"{model.model_id} does not respond") from error
        await self._noted(caller, origin, asked, model.model_id)
        self._filled, self._took_s = 0, 0.0
        await self._models.put_beside(model)

    async def _turn(self, caller: str, origin: Origin, asked: ChangeEmbeddingModel) -> None:
        other = await self._other(asked)
        back = asked.act == "rollback"
        if back != (self._models.beside == "before"):
            problem = f"{other.model_id} is {'not active yet' if back else 'the previous model'}"
            problem += ": switch to it" if back else ": roll back to it"
            raise Permanent(ErrorCode.CONFLICT, (Problem(field="model", problem=problem),))
        missing = await self._missing(other.model_id)
        if missing > BATCH:
            problem = f"{missing} records have no vector of {other.model_id} yet"
            raise Permanent(ErrorCode.CONFLICT, (Problem(field="model", problem=problem),))
        waiting = [] if asked.unindexed else (await self.status())["unindexed"]
        if waiting:
            problem = f"{', '.join(waiting)}: no index of {other.model_id} yet; the index job creates it"
            raise Permanent(ErrorCode.CONFLICT, (Problem(field="unindexed", problem=problem),))
        await self._noted(caller, origin, asked, other.model_id)
        self._embeddings.ask_again(other.model_id)
        for _ in range(_TURNS):
            if await self._models.turn("next" if back else "before"):
                return
            await self._fill_model(other)
        problem = f"commits write faster than {other.model_id} embeds: try again"
        raise Permanent(ErrorCode.CONFLICT, (Problem(field="model", problem=problem),))

    async def _missing(self, model: str) -> int:
        missing = 0
        for project in await self._models.projects():
            async with self._database.reading(project) as connection:
                done = await connection.fetchrow(_DONE, project, model, "")
            assert done is not None
            missing += max(0, done["rows"] - done["vectors"])
        return missing

    async def _noted(self, caller: str, origin: Origin, asked: ChangeEmbeddingModel, model: str) -> None:
        """Write the command and its principal into the audit log before it is executed."""
        commit_id = new_id()
        leaf = {
            "commit": commit_id,
            "project": origin.project,
            "reembed": asked.act,
            "model": model,
            "active": self._search.model_id,
            "service": caller,
            "message": origin.message_id,
            "principal": origin.principal,
            "task": None,
            "at": datetime.now(UTC).isoformat(),
        }
        noted = CommitPlan(
            project=origin.project, commit_id=commit_id, consumer=caller, message_id="", step="", last=False, fence=0,
            task_id=None, task_version=None, ended_ok=True, kind="commit", audit=canonical(leaf),
            salt=secrets.token_bytes(16), reads=None,
        )  # fmt: skip
        await self._committer.apply(noted)

    async def _fill(self) -> None:
        for model in self._search.models:
            await self._fill_model(model)

    async def _fill_model(self, model: EmbeddingModel) -> None:
        for project in await self._models.projects():
            after = 0
            while self._search.holds(model.model_id):
                began = time.monotonic()
                async with self._database.reading(project) as connection:
                    rows = await connection.fetch(_GAPS, project, model.model_id, after, BATCH)
                if not rows:
                    break
                await self._make(project, model, rows)
                after = rows[-1]["row"]
                self._filled += len(rows)
                self._took_s += time.monotonic() - began

    async def _make(self, project: str, model: EmbeddingModel, rows: Sequence[Any]) -> None:
        """Vectors of some rows; of each label for itself, for a model outside may not be told all of them."""
        by_label: defaultdict[int, list[Any]] = defaultdict(list)
        for row in rows:
            by_label[row["label"]].append(row)
        for label, alike in by_label.items():
            texts = [self._said(row) for row in alike]
            made = await self._embedded(project, model, texts, label)
            async with self._database.writing(project) as connection:
                await connection.execute(
                    _LAY,
                    project,
                    model.model_id,
                    [row["row"] for row in alike],
                    [row["version"] for row in alike],
                    [None if isinstance(each, str) else str(each.tolist()) for each in made],
                    [each if isinstance(each, str) else None for each in made],
                )

    def _said(self, row: Mapping[str, Any]) -> str:
        return self._embeddings.text(row["store"], upcast(row["store"], row["schema_version"], row["body"])[1])

    async def _embedded(self, project: str, model: EmbeddingModel, texts: Sequence[str], label: int) -> list[Any]:
        """A vector of each text, or why the model has none of it."""
        try:
            return (await self._embeddings.of(project, texts, label, "reembedding", model=model.model_id))[0]
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

    async def _tidy(self) -> None:
        """Forget the vectors of models that are not in use."""
        for project in await self._models.projects():
            gone = ""
            while gone != "DELETE 0":
                async with self._database.writing(project) as connection:
                    gone = await connection.execute(_FORGET, project, _FORGET_AT_ONCE)
            async with self._database.writing(project) as connection:
                await connection.execute(_FORGET_KNOWN, project)

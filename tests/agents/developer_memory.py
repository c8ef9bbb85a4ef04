"""Memory for the developer's tests: records in dictionaries, real chunks, a similarity of the test's choice."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from statistics import fmean, pstdev
from typing import Any

from counterpoint.client import Memory
from counterpoint.developer.words import content_words
from counterpoint.memory.ingest.chunk import chunk, detect
from counterpoint.memory.search.bm25 import idf
from counterpoint.proto.memory import (
    Commit,
    CommitReply,
    CommitRequest,
    EdgeWalk,
    Get,
    HybridSearch,
    Item,
    List,
    MemoryQuery,
    Origin,
    QueryReply,
    QueryRequest,
    QueryResult,
)

Similarity = Callable[[str, Sequence[str]], Awaitable[Sequence[float]]]

START = datetime(2026, 11, 17, 6, 0, tzinfo=UTC)
_TEXT = {"chunks": ("text",), "attempts": ("description", "error_message", "tried")}


async def by_words(query: str, texts: Sequence[str]) -> list[float]:
    """A deterministic stand-in for an embedding: the cosine of word counts."""
    asked = Counter(query.lower().split())
    return [_cosine(asked, Counter(text.lower().split())) for text in texts]


def _cosine(left: Counter[str], right: Counter[str]) -> float:
    norm = float(sum(n * n for n in left.values()) * sum(n * n for n in right.values())) ** 0.5
    return sum(left[word] * right[word] for word in left) / norm if norm else 0.0


class Shelf:
    """Stores in RAM that answer queries and take commits like memory does, for one project."""

    def __init__(self, similarity: Similarity = by_words, project: str = "shop") -> None:
        self.similarity = similarity
        self.project = project
        self.items: dict[tuple[str, str], Item] = {}
        self.commits: list[Commit] = []
        self.asked: list[MemoryQuery] = []

    def put(self, store: str, record_id: str, body: dict[str, Any], integrity: int = 2, author: str = "memory") -> Item:
        seen = self.items.get((store, record_id))
        item = Item(
            store=store,
            id=record_id,
            project=self.project,
            version=seen.version + 1 if seen else 1,
            body=body,
            author=author,
            label=1,
            integrity=integrity,
            seq=len(self.items) + 1,
            at=START,
        )
        self.items[store, record_id] = item
        return item

    def ingest(self, source: str, text: str, integrity: int = 2) -> None:
        """Chunk a document as memory does and keep it."""
        kind = detect(source, text)
        chunked = chunk(text, kind)
        for number, piece in enumerate(chunked.chunks):
            body = {
                "document_id": source,
                "source": source,
                "text": piece.text,
                "context": piece.context,
                "start": piece.start,
                "end": piece.end,
                "type": chunked.type,
                "title": PurePosixPath(source).stem,
            }
            self.put("chunks", f"{source}-{number}", body, integrity)
        self.put("documents", source, {"source": source, "text": text}, integrity)

    def ingest_folder(self, folder: Path, root: Path) -> None:
        """Keep every file of a folder; its source is its path below `root`."""
        for path in sorted(folder.rglob("*.md")):
            self.ingest_file(path, root)

    def ingest_file(self, path: Path, root: Path, integrity: int = 2) -> None:
        """Keep one file."""
        self.ingest(path.relative_to(root).as_posix(), path.read_text(), integrity)

    def memory(self, message_id: str, task_id: str, day: int = 0) -> Memory:
        """The client a handler gets for one delivery."""
        origin = Origin(message_id=message_id, fence=1, project=self.project, task_id=task_id)
        return Memory(self, "developer", origin, START + timedelta(days=day))

    async def __call__(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        if subject.endswith(".query"):
            asked = QueryRequest.model_validate_json(body).queries
            self.asked.extend(asked)
            return QueryReply(found=tuple([await self._found(query) for query in asked])).model_dump_json().encode()
        commit = CommitRequest.model_validate_json(body).commit
        self.apply(commit)
        return CommitReply(status="done").model_dump_json().encode()

    def apply(self, commit: Commit) -> None:
        """Keep what a commit writes."""
        self.commits.append(commit)
        for write in commit.writes:
            if write.body is not None:
                self.put(write.store, write.id, write.body, 1, "developer")

    async def _found(self, query: MemoryQuery) -> QueryResult:
        match query:
            case Get(store=store, id=record_id):
                item = self.items.get((store, record_id))
                return _answer([item] if item else [])
            case List(store=store, where=where, limit=limit):
                listed = [item for item in self._of(store) if where.items() <= item.body.items()]
                return _answer(sorted(listed, key=lambda item: -item.seq)[:limit])
            case HybridSearch(also=also, k=k) if also:
                best: dict[str, Item] = {}
                for text in query.texts:
                    alone = query.model_copy(update={"text": text, "also": (), "k": 200})
                    for item in (await self._found(alone)).items:
                        known = best.get(item.id)
                        signs = known.scores if known else item.scores if text == query.text else {}
                        score = max(item.score or 0, known.score or 0) if known else item.score
                        best[item.id] = item.model_copy(update={"score": score, "scores": signs})
                return _answer(sorted(best.values(), key=lambda item: -(item.score or 0))[:k])
            case HybridSearch(store=store, text=text, k=k):
                items = self._of(store)
                texts = ["\n".join(item.body.get(name) or "" for name in _TEXT[store]) for item in items]
                found = await self.similarity(text, texts) if texts else ()
                signs = zip(found, _deviations(found), *_by_words(text, texts), strict=True)
                scored = [
                    item.model_copy(
                        update={
                            "score": cosine,
                            "scores": {
                                "cosine": cosine,
                                "cosine_z": cosine_z,
                                "lexical": lexical,
                                "lexical_z": lexical_z,
                                "coverage": covered,
                            },
                        }
                    )
                    for item, (cosine, cosine_z, lexical, lexical_z, covered) in zip(items, signs, strict=True)
                ]
                return _answer(sorted((item for item in scored if item.score), key=lambda item: -(item.score or 0))[:k])
            case EdgeWalk(direction="down" | "up"):
                return _answer(self._walked(query))
            case other:
                raise NotImplementedError(other.op)

    def _walked(self, query: EdgeWalk) -> list[Item]:
        of, to = ("source", "target") if query.direction == "down" else ("target", "source")
        found: dict[str, Item] = {}
        ahead = set(query.start)
        for _ in range(query.depth):
            edges = [item for item in self._of(query.store) if item.body[of] in ahead and item.id not in found]
            found |= {item.id: item for item in edges}
            ahead = {item.body[to] for item in edges}
        return list(found.values())[: query.limit]

    def _of(self, store: str) -> list[Item]:
        return [item for (name, _), item in self.items.items() if name == store]


def _by_words(query: str, texts: Sequence[str]) -> tuple[list[float], list[float], list[float]]:
    """Of each text the worth of the query's words that it holds, that in deviations, and as a share of all."""
    asked, held = content_words(query), [content_words(text) for text in texts]
    worth = {word: idf(len(texts), sum(word in words for words in held)) for word in asked}
    lexical = [sum(value for word, value in worth.items() if word in words) for words in held]
    return lexical, _deviations(lexical), [each / max(sum(worth.values()), 1e-9) for each in lexical]


def _deviations(values: Sequence[float]) -> list[float]:
    spread = pstdev(values) if values else 0.0
    return [(value - fmean(values)) / spread if spread else 0.0 for value in values]


def _answer(items: Sequence[Item]) -> QueryResult:
    return QueryResult(items=tuple(items), tier="record", plan="test", took_us=0)

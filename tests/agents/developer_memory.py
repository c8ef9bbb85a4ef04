"""A fake memory for the developer: real chunks, and a similarity of the test's choice."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from statistics import fmean, pstdev
from typing import Any

from memory_service.fake import FakeMemory

from counterpoint.client import Memory
from counterpoint.developer.language.words import content_words
from counterpoint.memory.ingest.chunk import chunk, detect
from counterpoint.memory.search.bm25 import idf
from counterpoint.proto.memory import Item
from counterpoint.proto.tasks import TaskDelegated

Similarity = Callable[[str, Sequence[str]], Awaitable[Sequence[float]]]

START = datetime(2026, 11, 17, 6, 0, tzinfo=UTC)
_TEXT = {
    "chunks": ("text",),
    "attempts": ("description", "error_message", "tried"),
    "judge_memory": ("text",),
    "planner_memory": ("text",),
}


async def by_words(query: str, texts: Sequence[str]) -> list[float]:
    """A deterministic stand-in for an embedding: the cosine of word counts."""
    asked = Counter(query.lower().split())
    return [_cosine(asked, Counter(text.lower().split())) for text in texts]


def _cosine(left: Counter[str], right: Counter[str]) -> float:
    norm = float(sum(n * n for n in left.values()) * sum(n * n for n in right.values())) ** 0.5
    return sum(left[word] * right[word] for word in left) / norm if norm else 0.0


class Shelf(FakeMemory):
    """One project with the developer at work. Searches of chunks and attempts have the signs that memory gives."""

    def __init__(self, similarity: Similarity = by_words) -> None:
        super().__init__("developer", "shop", START)
        self.similarity = similarity

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
            self.put("chunks", f"{source}-{number}", body, integrity=integrity)
        self.put("documents", source, {"source": source, "text": text}, integrity=integrity)

    def ingest_folder(self, folder: Path, root: Path) -> None:
        """Keep every file of a folder; its source is its path below `root`."""
        for path in sorted(folder.rglob("*.md")):
            self.ingest_file(path, root)

    def ingest_file(self, path: Path, root: Path, integrity: int = 2) -> None:
        """Keep one file."""
        self.ingest(path.relative_to(root).as_posix(), path.read_text(), integrity)

    def delivered(self, message_id: str, task_id: str, day: int = 0) -> Memory:
        """The client of a handler for one delivery of a delegated task."""
        self.now = START + timedelta(days=day)
        return self.memory(message_id, type=TaskDelegated.TYPE, task_id=task_id)

    async def search(self, query: Any, items: list[Item]) -> list[Item]:
        """The items most alike, by the best of the texts; the signs are those of the query's own."""
        best: dict[str, Item] = {}
        for text in query.texts:
            for item in await self._scored(text, query.store, items):
                known = best.get(item.id)
                signs = known.scores if known else item.scores if text == query.text else {}
                score = max(item.score or 0, known.score or 0) if known else item.score
                best[item.id] = item.model_copy(update={"score": score, "scores": signs})
        return sorted(best.values(), key=lambda item: -(item.score or 0))[: query.k]

    async def _scored(self, text: str, store: str, items: list[Item]) -> list[Item]:
        texts = ["\n".join(item.body.get(name) or "" for name in _TEXT[store]) for item in items]
        found = await self.similarity(text, texts) if texts else ()
        signs = zip(found, _deviations(found), *_by_words(text, texts), strict=True)
        names = ("cosine", "cosine_z", "lexical", "lexical_z", "coverage")
        return [
            item.model_copy(update={"score": each[0], "scores": dict(zip(names, each, strict=True))})
            for item, each in zip(items, signs, strict=True)
            if each[0]
        ]


def _by_words(query: str, texts: Sequence[str]) -> tuple[list[float], list[float], list[float]]:
    """Return per text the weight of the query's words: plain, in standard deviations, and as a share of the total."""
    asked, held = content_words(query), [content_words(text) for text in texts]
    worth = {word: idf(len(texts), sum(word in words for words in held)) for word in asked}
    lexical = [sum(value for word, value in worth.items() if word in words) for words in held]
    return lexical, _deviations(lexical), [each / max(sum(worth.values()), 1e-9) for each in lexical]


def _deviations(values: Sequence[float]) -> list[float]:
    spread = pstdev(values) if values else 0.0
    return [(value - fmean(values)) / spread if spread else 0.0 for value in values]

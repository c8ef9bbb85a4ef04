"""Evaluation sets: the layout they are read from, and how the original files of three of them become it.

    python tests/bench/sets.py SOURCE TARGET

A folder in the layout has `corpus.jsonl` (`_id`, `text`, `title`, and optionally `group`, `position`, `at`, `speaker`),
`queries.jsonl` (`_id`, `text`, and optionally `group`, `category`) and `qrels.tsv` (query, text and relevance, under a
line of titles).
"""

import csv
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

csv.field_size_limit(2**27)


@dataclass(frozen=True)
class Text:
    """What is searched for. `position` orders the texts of a group."""

    id: str
    text: str
    title: str = ""
    group: str = ""
    position: float = 0
    at: str | None = None
    speaker: str | None = None


@dataclass(frozen=True)
class Query:
    """A question, and the worth of each text that answers it, above 0."""

    id: str
    text: str
    group: str
    category: str | None
    relevant: dict[str, float]


@dataclass
class Group:
    """Texts that are searched alone, and the questions about them."""

    name: str
    texts: list[Text] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)


@dataclass(frozen=True)
class Set:
    """A set by its name; questions that nothing answers are left out."""

    name: str
    groups: tuple[Group, ...]

    @property
    def spoken(self) -> bool:
        """Whether its texts are turns of conversations."""
        return any(text.speaker for group in self.groups for text in group.texts)


class Unreadable(Exception):
    """A folder or a file of it that is not as the layout says; says which line and why."""


def read(folder: Path) -> Set:
    """A set in the layout. Raises `Unreadable`."""
    groups: dict[str, Group] = {}
    ids = set()
    for line, row in _rows(folder / "corpus.jsonl"):
        text = _text(folder, line, row)
        if (text.group, text.id) in ids:
            raise Unreadable(f"{folder}/corpus.jsonl line {line}: _id {text.id} is there twice")
        ids.add((text.group, text.id))
        groups.setdefault(text.group, Group(text.group)).texts.append(text)
    relevant = _qrels(folder / "qrels.tsv")
    for line, row in _rows(folder / "queries.jsonl"):
        query_id, text_, group = _string(folder, line, row, "_id"), _string(folder, line, row, "text"), _name(row)
        if group not in groups:
            raise Unreadable(f"{folder}/queries.jsonl line {line}: no text has the group {group or '(none)'}")
        answers = {id: worth for id, worth in relevant.get(query_id, {}).items() if (group, id) in ids}
        if answers:
            category = row.get("category")
            groups[group].queries.append(
                Query(query_id, text_, group, None if category is None else str(category), answers)
            )
    for group in groups.values():
        group.texts.sort(key=lambda text: text.position)
    return Set(folder.name, tuple(groups.values()))


def found(folder: Path, scratch: Path) -> Iterator[Set]:
    """The sets in a folder: itself, or those within it, in the layout or as their authors publish them; these are
    converted into `scratch`. Raises `Unreadable` where there is none."""
    if (folder / "corpus.jsonl").is_file():
        yield read(folder)
        return
    any_ = False
    for inside in [folder, *sorted(folder.iterdir())] if folder.is_dir() else [folder]:
        if inside != folder and (inside / "corpus.jsonl").is_file():
            any_ = True
            yield read(inside)
        elif (kind := _kind(inside)) is not None:
            any_ = True
            CONVERTERS[kind](inside, scratch / kind)
            yield read(scratch / kind)
    if not any_:
        raise Unreadable(f"{folder} holds no corpus.jsonl, and nothing of {', '.join(CONVERTERS)}")


def write(
    target: Path, texts: Iterable[dict[str, Any]], queries: Iterable[dict[str, Any]], qrels: Iterable[Any]
) -> None:
    """A set in the layout."""
    target.mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus.jsonl", texts), ("queries.jsonl", queries)):
        with (target / name).open("w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
    with (target / "qrels.tsv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(("query-id", "corpus-id", "score"))
        writer.writerows(qrels)


def locomo(source: Path, target: Path) -> None:
    """Conversations: each a group, each turn a text. Adversarial questions (category 5) are left out: what they name as
    evidence is what misleads."""
    texts, queries, qrels = [], [], []
    for sample in json.loads(source.read_text(encoding="utf-8")):
        group, conversation = sample["sample_id"], sample["conversation"]
        sessions = sorted(int(name[8:]) for name in conversation if re.fullmatch(r"session_\d+", name))
        turns = [
            (turn, conversation[f"session_{n}_date_time"]) for n in sessions for turn in conversation[f"session_{n}"]
        ]
        for position, (turn, at) in enumerate(turns):
            texts.append(
                {"_id": f"{group}/{turn['dia_id']}", "text": turn["text"], "group": group, "position": position,
                 "at": at, "speaker": turn["speaker"]}
            )  # fmt: skip
        known = {turn["dia_id"] for turn, _ in turns}
        for n, asked in enumerate(sample["qa"]):
            evidence = {turn for said in asked.get("evidence", ()) for turn in re.findall(r"D\d+:\d+", said)} & known
            if asked["category"] == 5 or not evidence:
                continue
            query_id = f"{group}/q{n}"
            queries.append({"_id": query_id, "text": asked["question"], "group": group, "category": asked["category"]})
            qrels += [(query_id, f"{group}/{turn}", 1) for turn in sorted(evidence)]
    write(target, texts, queries, qrels)


def cosqa(source: Path, target: Path) -> None:
    """Functions, and questions of which each has one that answers it."""
    functions = json.loads((source / "code_idx_map.txt").read_text(encoding="utf-8"))
    (asked,) = (json.loads(file.read_text(encoding="utf-8")) for file in sorted(source.glob("cosqa-retrieval-*.json")))
    write(
        target,
        ({"_id": f"c{number}", "text": code} for code, number in functions.items()),
        ({"_id": each["idx"], "text": each["doc"]} for each in asked),
        ((each["idx"], f"c{each['retrieval_idx']}", 1) for each in asked),
    )


def cranfield(source: Path, target: Path) -> None:
    """Abstracts; a judgement of 1 (a complete answer) is worth 4, one of 4 (of little interest) is worth 1. Questions
    are counted from 1, whatever their number in the file is."""
    texts = []
    for part in re.split(r"^\.I ", (source / "cran.all.1400").read_text(), flags=re.MULTILINE)[1:]:
        fields = re.split(r"^\.[TABW]\n", part, flags=re.MULTILINE)
        texts.append({"_id": fields[0].strip(), "title": " ".join(fields[1].split()), "text": fields[4].strip()})
    parts = re.split(r"^\.I ", (source / "cran.qry").read_text(), flags=re.MULTILINE)[1:]
    queries = [
        {"_id": str(number), "text": " ".join(part.split(".W\n", 1)[1].split())} for number, part in enumerate(parts, 1)
    ]
    judged = (line.split()[:3] for line in (source / "cranqrel").read_text().splitlines() if line.strip())
    qrels = [(query, text, 5 - int(code)) for query, text, code in judged if 1 <= int(code) <= 4]
    write(target, texts, queries, qrels)


CONVERTERS: dict[str, Callable[[Path, Path], None]] = {"locomo": locomo, "cosqa": cosqa, "cranfield": cranfield}


def _kind(path: Path) -> str | None:
    if path.is_file() and path.name.startswith("locomo") and path.suffix == ".json":
        return "locomo"
    if (path / "code_idx_map.txt").is_file():
        return "cosqa"
    return "cranfield" if (path / "cran.all.1400").is_file() else None


def _text(folder: Path, line: int, row: dict[str, Any]) -> Text:
    position = row.get("position", line)
    if isinstance(position, bool) or not isinstance(position, int | float):
        raise Unreadable(f"{folder}/corpus.jsonl line {line}: position {position!r} is no number")
    said = {name: None if row.get(name) is None else str(row[name]) for name in ("at", "speaker")}
    return Text(
        id=_string(folder, line, row, "_id"), text=_string(folder, line, row, "text"),
        title=str(row.get("title") or ""),
        group=_name(row), position=position, **said,
    )  # fmt: skip


def _name(row: dict[str, Any]) -> str:
    group = row.get("group")
    return "" if group is None else str(group)


def _string(folder: Path, line: int, row: dict[str, Any], name: str) -> str:
    if row.get(name) is None:
        raise Unreadable(f"{folder} line {line}: {name} is missing")
    return str(row[name])


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise Unreadable(f"{path} line {number}: is no object")
                    yield number, row
    except (OSError, ValueError) as error:
        raise Unreadable(f"{path}: {error}") from error


def _qrels(path: Path) -> dict[str, dict[str, float]]:
    relevant: defaultdict[str, dict[str, float]] = defaultdict(dict)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            next(rows, None)
            for row in rows:
                if row and float(row[2]) > 0:
                    relevant[row[0]][row[1]] = float(row[2])
    except (OSError, ValueError, IndexError) as error:
        raise Unreadable(f"{path}: {error or 'a line has no three columns'}") from error
    return relevant


if __name__ == "__main__":
    source = Path(sys.argv[1])
    kind = _kind(source)
    if kind is None:
        sys.exit(f"{source} is nothing of {', '.join(CONVERTERS)}")
    CONVERTERS[kind](source, Path(sys.argv[2]))

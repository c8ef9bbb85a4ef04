"""Evaluation sets: their layout, and converters for the original files of LoCoMo, CoSQA and Cranfield.

    python -m counterpoint.bench.evaluation_sets SOURCE TARGET

A folder in the layout has `corpus.jsonl` (`_id`, `text`, `title`, and optionally `group`, `position`, `at`, `speaker`),
`queries.jsonl` (`_id`, `text`, and optionally `group`, `category`) and `qrels.tsv` (query, text and relevance, with a
header line).
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
class SetText:
    """Text to search for. `position` orders the texts of a group."""

    id: str
    text: str
    title: str = ""
    group: str = ""
    position: float = 0
    at: str | None = None
    speaker: str | None = None


@dataclass(frozen=True)
class SetQuery:
    """Question with the relevance of each text that answers it, above 0."""

    id: str
    text: str
    group: str
    category: str | None
    relevant: dict[str, float]


@dataclass
class TextGroup:
    """Texts that are searched separately from other groups, and the questions about them."""

    name: str
    texts: list[SetText] = field(default_factory=list)
    queries: list[SetQuery] = field(default_factory=list)


@dataclass(frozen=True)
class EvaluationSet:
    """Named set without the questions that no text answers."""

    name: str
    groups: tuple[TextGroup, ...]

    @property
    def spoken(self) -> bool:
        """True if the texts are turns of conversations."""
        return any(text.speaker for group in self.groups for text in group.texts)


class UnreadableSet(Exception):
    """Folder or file that does not have the expected layout; the message names line and reason."""


def read_set(folder: Path) -> EvaluationSet:
    """Read a set in the layout. Raises `UnreadableSet`."""
    groups: dict[str, TextGroup] = {}
    ids = set()
    for line, row in _rows(folder / "corpus.jsonl"):
        text = _text(folder, line, row)
        if (text.group, text.id) in ids:
            raise UnreadableSet(f"{folder}/corpus.jsonl line {line}: _id {text.id} occurs twice")
        ids.add((text.group, text.id))
        groups.setdefault(text.group, TextGroup(text.group)).texts.append(text)
    relevant = _qrels(folder / "qrels.tsv")
    for line, row in _rows(folder / "queries.jsonl"):
        query_id, text_, group = _string(folder, line, row, "_id"), _string(folder, line, row, "text"), _name(row)
        if group not in groups:
            raise UnreadableSet(f"{folder}/queries.jsonl line {line}: no text has the group {group or '(none)'}")
        answers = {id: relevance for id, relevance in relevant.get(query_id, {}).items() if (group, id) in ids}
        if answers:
            category = row.get("category")
            groups[group].queries.append(
                SetQuery(query_id, text_, group, None if category is None else str(category), answers)
            )
    for each in groups.values():
        each.texts.sort(key=lambda text: text.position)
    return EvaluationSet(folder.name, tuple(groups.values()))


def read_sets(folder: Path, scratch: Path) -> Iterator[EvaluationSet]:
    """Yield the sets of a folder: itself, or those within it, in the layout or as published. The latter are converted
    into `scratch`. Raises `UnreadableSet` if there is none."""
    if (folder / "corpus.jsonl").is_file():
        yield read_set(folder)
        return
    any_set = False
    for inside in [folder, *sorted(folder.iterdir())] if folder.is_dir() else [folder]:
        if inside != folder and (inside / "corpus.jsonl").is_file():
            any_set = True
            yield read_set(inside)
        elif (kind := _kind(inside)) is not None:
            any_set = True
            CONVERTERS[kind](inside, scratch / kind)
            yield read_set(scratch / kind)
    if not any_set:
        raise UnreadableSet(f"{folder} contains no corpus.jsonl, and no files of {', '.join(CONVERTERS)}")


def write_set(
    target: Path, texts: Iterable[dict[str, Any]], queries: Iterable[dict[str, Any]], qrels: Iterable[Any]
) -> None:
    """Write a set in the layout."""
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
    """Convert LoCoMo: each conversation is a group, each turn a text. Adversarial questions (category 5) are left out:
    the evidence that they name is misleading."""
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
            evidence = {turn for text in asked.get("evidence", ()) for turn in re.findall(r"D\d+:\d+", text)} & known
            if asked["category"] == 5 or not evidence:
                continue
            query_id = f"{group}/q{n}"
            queries.append({"_id": query_id, "text": asked["question"], "group": group, "category": asked["category"]})
            qrels += [(query_id, f"{group}/{turn}", 1) for turn in sorted(evidence)]
    write_set(target, texts, queries, qrels)


def cosqa(source: Path, target: Path) -> None:
    """Convert CoSQA: each text is a function, and each question has one answer."""
    functions = json.loads((source / "code_idx_map.txt").read_text(encoding="utf-8"))
    (asked,) = (json.loads(file.read_text(encoding="utf-8")) for file in sorted(source.glob("cosqa-retrieval-*.json")))
    write_set(
        target,
        ({"_id": f"c{number}", "text": code} for code, number in functions.items()),
        ({"_id": each["idx"], "text": each["doc"]} for each in asked),
        ((each["idx"], f"c{each['retrieval_idx']}", 1) for each in asked),
    )


def cranfield(source: Path, target: Path) -> None:
    """Convert Cranfield: a judgement of 1 (a complete answer) has relevance 4, one of 4 (of little interest) relevance
    1. Questions are numbered from 1, not by their number in the file."""
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
    write_set(target, texts, queries, qrels)


CONVERTERS: dict[str, Callable[[Path, Path], None]] = {"locomo": locomo, "cosqa": cosqa, "cranfield": cranfield}


def _kind(path: Path) -> str | None:
    if path.is_file() and path.name.startswith("locomo") and path.suffix == ".json":
        return "locomo"
    if (path / "code_idx_map.txt").is_file():
        return "cosqa"
    return "cranfield" if (path / "cran.all.1400").is_file() else None


def _text(folder: Path, line: int, row: dict[str, Any]) -> SetText:
    position = row.get("position", line)
    if isinstance(position, bool) or not isinstance(position, int | float):
        raise UnreadableSet(f"{folder}/corpus.jsonl line {line}: position {position!r} is not a number")
    optional = {name: None if row.get(name) is None else str(row[name]) for name in ("at", "speaker")}
    return SetText(
        id=_string(folder, line, row, "_id"), text=_string(folder, line, row, "text"),
        title=str(row.get("title") or ""),
        group=_name(row), position=position, **optional,
    )  # fmt: skip


def _name(row: dict[str, Any]) -> str:
    group = row.get("group")
    return "" if group is None else str(group)


def _string(folder: Path, line: int, row: dict[str, Any], name: str) -> str:
    if row.get(name) is None:
        raise UnreadableSet(f"{folder} line {line}: {name} is missing")
    return str(row[name])


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise UnreadableSet(f"{path} line {number}: is not a JSON object")
                    yield number, row
    except (OSError, ValueError) as error:
        raise UnreadableSet(f"{path}: {error}") from error


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
        raise UnreadableSet(f"{path}: {error or 'a line has fewer than three columns'}") from error
    return relevant


if __name__ == "__main__":
    source = Path(sys.argv[1])
    kind = _kind(source)
    if kind is None:
        sys.exit(f"{source} contains no files of {', '.join(CONVERTERS)}")
    CONVERTERS[kind](source, Path(sys.argv[2]))

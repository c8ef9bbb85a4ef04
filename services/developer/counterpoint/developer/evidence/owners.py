"""Owners of the jobs and data sets that a question names, from lineage."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from counterpoint.client import Memory, readable
from counterpoint.developer.excerpts.relevance import Grade, Hit, HitFeatures
from counterpoint.developer.language.exact_forms import is_name, names_in
from counterpoint.developer.language.german import stop_word
from counterpoint.developer.language.kinds import OWNERSHIP
from counterpoint.developer.language.words import content_words
from counterpoint.graph.edges import EdgeKind, LineageEdge
from counterpoint.graph.names import Node, NodeKind, node_of
from counterpoint.graph.walks import LineageGraph
from counterpoint.proto.memory import Get, Item, List
from counterpoint.proto.records import OwnedNode

RECORDED = 0.95
"""Probability that a recorded owner of a named job or data set is the answer."""
RECORDED_OWNER = Grade(sufficient=True, probability=RECORDED, reason="lineage has the owner of what is asked about")
SCANNED, NAMED = 1000, 5
"""Maximum number of jobs, and of data sets, that are compared with a question, newest first; and of those answered
for."""
_ASKING = content_words("who whose which team group squad owns owner owned maintains maintainer responsible"
                        " accountable wer wem welches gehört besitzt betreut verantwortet zuständig verantwortlich"
                        " besitzer eigentümer current currently actually please")  # fmt: skip
_KINDS = content_words(
    "job dag pipeline flow task model table dataset data set view topic file tabelle datensatz modell"
)
_PART = re.compile(r"[./]")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class _Named:
    """A job or data set that a question names, and its record."""

    node: Node
    item: Item
    owners: tuple[str, ...]


async def look_up_owners(memory: Memory, question: str) -> tuple[Hit, ...]:
    """Return the owners of the jobs and data sets that a question names, each as a hit: its text are the owners, its
    context is the sentence about them. Other questions are not looked up.

    One without owners has those of a job that it is part of, or that writes it. Raises `Transient` or `Denied`.
    """
    if OWNERSHIP.search(question) is None or not (_subject(question) or names_in(question)):
        return ()
    answers = await memory.query(*(List(store=f"{kind}s", limit=SCANNED) for kind in NodeKind))
    known = [
        _Named(Node(kind=kind, namespace=record.namespace, name=record.name), item, record.owners)
        for kind, answer in zip(NodeKind, answers, strict=True)
        for item, record in readable(answer.items, OwnedNode)
    ]
    found: dict[str, Hit] = {}
    for each in named_in(question, known):
        hit = _hit(each, each.node, _is_owned(each.node)) if each.owners else await _inherited(memory, each.node)
        if hit is not None:
            found.setdefault(hit.context, hit)
    return tuple(found.values())


def owner_sentence(hit: Hit) -> str:
    """Return the owner of a hit as a sentence."""
    return f"{hit.context} {hit.text}."


def names_subject(question: str, text: str) -> bool:
    """Return whether a text contains all words for the subject of a question."""
    return _subject(question) <= content_words(text)


def named_in(question: str, known: Sequence[_Named]) -> list[_Named]:
    """Return the jobs and data sets of an identifier in the question, else those whose names have all words of its
    subject and the fewest others."""
    identifiers, subject = names_in(question), _subject(question)
    exact = [each for each in known if not identifiers.isdisjoint(_names(each.node))]
    if exact:
        return exact[:NAMED]
    words = [(each, content_words(str(each.node))) for each in known]
    wide = [(len(have - subject), each) for each, have in words if subject and subject <= have]
    fewest = min((others for others, _ in wide), default=0)
    return [each for others, each in wide if others == fewest][:NAMED]


def _subject(question: str) -> frozenset[str]:
    """The words of the question except those that ask, and kinds of things."""
    kept = (word for word in _WORD.findall(question) if not stop_word(word.lower()))
    return content_words(" ".join(kept)) - _ASKING - _KINDS


def _names(node: Node) -> frozenset[str]:
    """The names by which a question may identify a node: with its namespace, without it, and the last part."""
    last = _PART.split(node.name)[-1]
    return frozenset(name.lower() for name in (str(node), node.name, last) if is_name(name))


async def _inherited(memory: Memory, node: Node) -> Hit | None:
    """Return the owners of the nearest job that a node is part of or that writes it, else of what a job writes."""
    graph = LineageGraph(memory)
    owners = await graph.owners({node.ref})
    for link, ref in _kin(node, graph.edges):
        origin = node_of(ref)
        if owners.get(ref) and (item := await _record(memory, origin)) is not None:
            via = f"{_thing(node)} {link} {_thing(origin, first=False)}, which is owned by"
            return _hit(_Named(origin, item, owners[ref]), node, via)
    return None


def _kin(node: Node, edges: Sequence[LineageEdge]) -> Iterator[tuple[str, str]]:
    """Yield the nodes whose owners are those of a node, nearest first, each with its relation to the node."""
    flows = sorted((edge.source, edge.target) for edge in edges if edge.kind is EdgeKind.DATA)
    parents = sorted((edge.source, edge.target) for edge in edges if edge.kind is EdgeKind.PARENT)
    link, ahead = "is part of", [node.ref]
    if node.kind is NodeKind.DATASET:
        link, ahead = "is written by", [source for source, target in flows if target == node.ref]
        yield from ((link, ref) for ref in ahead)
    seen = set(ahead)
    while ahead := [source for source, target in parents if target in ahead and source not in seen]:
        seen.update(ahead)
        yield from ((link, ref) for ref in dict.fromkeys(ahead))
    if node.kind is NodeKind.JOB:
        yield from (("writes", target) for source, target in flows if source == node.ref)


async def _record(memory: Memory, node: Node) -> Item | None:
    (answer,) = await memory.query(Get(store=f"{node.kind}s", id=node.id))
    return next(iter(answer.items), None)


def _hit(owner: _Named, node: Node, context: str) -> Hit:
    text = ", ".join(owner.owners)
    return Hit(
        item=owner.item,
        source=f"{owner.item.store}/{owner.item.id}#owners",
        text=text,
        context=context,
        start=0,
        markdown=False,
        relevance=RECORDED,
        features=HitFeatures(cosine=0.0, overlap=1.0),
        words=content_words(f"{node} {text}"),
    )


def _is_owned(node: Node) -> str:
    return f"{_thing(node)} is owned by"


def _thing(node: Node, first: bool = True) -> str:
    kind = "data set" if node.kind is NodeKind.DATASET else "job"
    return f"{'The' if first else 'the'} {kind} {node}"

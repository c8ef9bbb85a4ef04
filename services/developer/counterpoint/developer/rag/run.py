"""State of a run over a question, and its transitions. Pure."""

from typing import Literal, assert_never

from counterpoint.developer.evidence.search_query import SearchQuery
from counterpoint.developer.excerpts.relevance import Grade
from counterpoint.proto.findings import Citation
from counterpoint.proto.messages import Shape

RULES, QUOTES, PASSAGES = "rules", "quotes", "plain retrieval"
"""Authors of a route or a draft other than a model: the rules, quotes, and the passages of a fallback."""
MAX_REWRITES = 2
MAX_REGENERATIONS = 1

Node = Literal["route", "retrieve", "evaluate", "generate", "validate"]
Mode = Literal["hybrid", "vector", "web"]
Ending = Literal["answered", "insufficient_evidence", "fallback"]


class Route(Shape):
    """The kind of search for a question, its author (rules, or a model) and the reason."""

    mode: Mode
    reason: str
    by: str = RULES


class PassageVersion(Shape):
    """The id and version of a found passage."""

    id: str
    version: int


class WebPage(Shape):
    """A web page for further reading."""

    title: str
    url: str


class Sentence(Shape):
    """A sentence of a draft and the indexes of its citations in the draft.

    `cites_unknown`: it also cites passages that do not exist.
    """

    text: str
    rests_on: tuple[int, ...]
    cites_unknown: bool = False


class Draft(Shape):
    """An unchecked answer. `declined`: the model that was asked for one found none in the passages."""

    sentences: tuple[Sentence, ...] = ()
    citations: tuple[Citation, ...] = ()
    by: str = QUOTES
    declined: bool = False


class Verdict(Shape):
    """Whether a sentence is supported by its citations, else the problem."""

    supported: bool
    problem: str | None = None


class Run(Shape):
    """State of a run after a step, as in its checkpoint. `last` and `next` are nodes; `next` is None at the end.
    `meant` is the question with those before it that it refers to; `wanted_search` are words for the web that need an
    approval; `spent_s` is the time of all steps of all
    deliveries."""

    question: str
    meant: str = ""
    next: Node | None = "route"
    steps: int = 0
    last: Node | None = None
    route: Route | None = None
    asked: SearchQuery | None = None
    found: tuple[PassageVersion, ...] = ()
    graded: Grade | None = None
    rewrites: int = 0
    draft: Draft | None = None
    verdicts: tuple[Verdict, ...] = ()
    regenerations: int = 0
    ending: Ending | None = None
    leads: tuple[WebPage, ...] = ()
    notes: tuple[str, ...] = ()
    wanted_search: str | None = None
    spent_s: float = 0.0

    def with_notes(self, *notes: str) -> "Run":
        """Return the run with further notes, each once."""
        return self.model_copy(update={"notes": tuple(dict.fromkeys((*self.notes, *notes)))})


def after_route(run: Run, route: Route, asked: SearchQuery) -> Run:
    """Return the run after its route was chosen."""
    return _after_step(run, "retrieve", route=route, asked=asked, meant=asked.text if asked.why else run.question)


def after_retrieve(run: Run, found: tuple[PassageVersion, ...]) -> Run:
    """Return the run after a search."""
    return _after_step(run, "evaluate", found=found)


def after_evaluate(run: Run, grade: Grade, rewritten: SearchQuery | None, late: bool) -> Run:
    """Return the run after the grade: next is a draft, a search with a rewritten query, or the end without an
    answer."""
    if grade.sufficient:
        return _after_step(run, "generate", graded=grade)
    if rewritten is None or run.rewrites >= MAX_REWRITES or late:
        return _after_step(run, None, graded=grade, ending="insufficient_evidence")
    return _after_step(run, "retrieve", graded=grade, asked=rewritten, rewrites=run.rewrites + 1)


def after_generate(run: Run, draft: Draft) -> Run:
    """Return the run after a draft: next is its check."""
    return _after_step(run, "validate", draft=draft)


def after_validate(run: Run, verdicts: tuple[Verdict, ...], late: bool) -> Run:
    """Return the run after the check of a draft: it ends with an answer, continues with a second draft, or ends with a
    fallback, whose draft the caller replaces by passages."""
    if verdicts and all(verdict.supported for verdict in verdicts):
        return _after_step(run, None, verdicts=verdicts, ending="answered")
    if run.regenerations >= MAX_REGENERATIONS or late:
        return _after_step(run, None, verdicts=verdicts, ending="fallback")
    return _after_step(run, "generate", verdicts=verdicts, regenerations=run.regenerations + 1)


def by_rules(run: Run, quotes: Draft, verdicts: tuple[Verdict, ...]) -> Run:
    """Return a run whose model drafted nothing that is supported, with quotes as its answer if they are supported."""
    if not verdicts or not all(verdict.supported for verdict in verdicts):
        return run
    problem = next(verdict.problem for verdict in run.verdicts if not verdict.supported) if run.verdicts else "is empty"
    note = f"the answer consists of quotes, because the model's was not supported: it {problem}"
    changes = {"draft": quotes, "verdicts": verdicts, "ending": "answered"}
    return run.with_notes(note).model_copy(update=changes)


def search_again(run: Run) -> Run:
    """Return the run at its search again, after its evidence has changed."""
    asked = (run.asked or SearchQuery(text=run.question)).model_copy(update={"why": "the results have changed since"})
    gone = {"found": (), "graded": None, "draft": None, "verdicts": (), "ending": None}
    return run.model_copy(update={"next": "retrieve", "asked": asked, **gone})


def after_failure(run: Run, node: Node, why: str) -> Run:
    """Return the run after a failed or refused step: rules choose the route, passages replace a draft."""
    noted = run.with_notes(f"{node} failed: {why}")
    match node:
        case "route":
            return after_route(
                noted, Route(mode="hybrid", reason=f"routing failed: {why}"), SearchQuery(text=run.question)
            )
        case "retrieve" | "evaluate":
            return _after_step(noted, None, ending="insufficient_evidence")
        case "generate" | "validate":
            return _after_step(noted, None, ending="fallback")
        case _:
            assert_never(node)


def _after_step(run: Run, next: Node | None, **changes: object) -> Run:
    return run.model_copy(update={"next": next, "steps": run.steps + 1, "last": run.next, **changes})

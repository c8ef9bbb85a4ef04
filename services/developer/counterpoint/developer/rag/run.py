"""State of a run over a question, and its transitions. Pure."""

from typing import Literal, assert_never

from counterpoint.developer.evidence.search_query import SearchQuery
from counterpoint.developer.excerpts.relevance import Grade
from counterpoint.proto.findings import Citation
from counterpoint.proto.messages import Shape

MAX_REWRITES = 2
MAX_REGENERATIONS = 1

Node = Literal["route", "retrieve", "evaluate", "generate", "validate"]
Mode = Literal["hybrid", "vector", "web"]
Ending = Literal["answered", "insufficient_evidence", "fallback"]


class Route(Shape):
    """The kind of search for a question, the author of that choice (rules, or a model) and its reason."""

    mode: Mode
    reason: str
    by: str = "rules"


class PassageVersion(Shape):
    """A passage as it was found: which, and at which version."""

    id: str
    version: int


class Lead(Shape):
    """A page of the web on which one might look further."""

    title: str
    url: str


class Sentence(Shape):
    """A sentence of a draft and the spans it rests on, by their place in the draft's citations."""

    text: str
    rests_on: tuple[int, ...]


class Draft(Shape):
    """An answer before it is checked. `declined`: its author found no answer in what it was shown."""

    sentences: tuple[Sentence, ...] = ()
    citations: tuple[Citation, ...] = ()
    by: str = "quotes"
    declined: bool = False


class Verdict(Shape):
    """Whether a sentence is supported by what it cites, and if not why."""

    supported: bool
    problem: str | None = None


class Run(Shape):
    """State of a run after each step, as its checkpoint holds it. `steps` counts the steps, `last` is the latest;
    `next` is None when the run has ended. `meant` is the question together with those that it follows on;
    `spent_s` is the time of all steps, over all deliveries."""

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
    leads: tuple[Lead, ...] = ()
    notes: tuple[str, ...] = ()
    spent_s: float = 0.0

    def noting(self, *notes: str) -> "Run":
        """Return the run with further notes, each once."""
        return self.model_copy(update={"notes": tuple(dict.fromkeys((*self.notes, *notes)))})


def after_route(run: Run, route: Route, asked: SearchQuery) -> Run:
    """Return the run after its route was chosen."""
    return _done(run, "retrieve", route=route, asked=asked, meant=asked.text if asked.why else run.question)


def after_retrieve(run: Run, found: tuple[PassageVersion, ...]) -> Run:
    """Return the run after a search."""
    return _done(run, "evaluate", found=found)


def after_evaluate(run: Run, grade: Grade, rewritten: SearchQuery | None, late: bool) -> Run:
    """Return the run after the grade: on to a draft, back to the search with a rewritten query, or at its end
    without an answer."""
    if grade.sufficient:
        return _done(run, "generate", graded=grade)
    if rewritten is None or run.rewrites >= MAX_REWRITES or late:
        return _done(run, None, graded=grade, ending="insufficient_evidence")
    return _done(run, "retrieve", graded=grade, asked=rewritten, rewrites=run.rewrites + 1)


def after_generate(run: Run, draft: Draft) -> Run:
    """Return the run after a draft: on to its check, or at its end where the author found no answer."""
    if draft.declined:
        return _done(run, None, draft=draft, ending="insufficient_evidence")
    return _done(run, "validate", draft=draft)


def after_validate(run: Run, verdicts: tuple[Verdict, ...], late: bool) -> Run:
    """Return the run after the check of a draft: at its end as an answer, back to a second draft, or at its end as a
    fallback, whose caller replaces the draft by the passages as they were found."""
    if verdicts and all(verdict.supported for verdict in verdicts):
        return _done(run, None, verdicts=verdicts, ending="answered")
    if run.regenerations >= MAX_REGENERATIONS or late:
        return _done(run, None, verdicts=verdicts, ending="fallback")
    return _done(run, "generate", verdicts=verdicts, regenerations=run.regenerations + 1)


def search_again(run: Run) -> Run:
    """Return the run back at its search, after the evidence that it found has changed."""
    asked = (run.asked or SearchQuery(text=run.question)).model_copy(update={"why": "the results have changed since"})
    gone = {"found": (), "graded": None, "draft": None, "verdicts": (), "ending": None}
    return run.model_copy(update={"next": "retrieve", "asked": asked, **gone})


def after_failure(run: Run, node: Node, why: str) -> Run:
    """Return the run after a step that failed or whose commit was refused: the rules choose the route, and a draft is
    replaced by the passages as they were found."""
    noted = run.noting(f"{node} failed: {why}")
    match node:
        case "route":
            return after_route(
                noted, Route(mode="hybrid", reason=f"routing failed: {why}"), SearchQuery(text=run.question)
            )
        case "retrieve" | "evaluate":
            return _done(noted, None, ending="insufficient_evidence")
        case "generate" | "validate":
            return _done(noted, None, ending="fallback")
        case _:
            assert_never(node)


def _done(run: Run, next: Node | None, **changes: object) -> Run:
    return run.model_copy(update={"next": next, "steps": run.steps + 1, "last": run.next, **changes})

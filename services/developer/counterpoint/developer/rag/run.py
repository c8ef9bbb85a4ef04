"""One run over a question: what has been decided so far, and so what comes next. Pure."""

from typing import Literal, assert_never

from counterpoint.proto.findings import Citation
from counterpoint.proto.messages import Shape

MAX_REWRITES = 2
MAX_REGENERATIONS = 1
QUERY_CHARS = 2_000
"""Of a text that is looked for, as much as is looked at."""

Node = Literal["route", "retrieve", "evaluate", "generate", "validate"]
Mode = Literal["hybrid", "vector", "web"]
Ending = Literal["answered", "insufficient_evidence", "fallback"]


class Route(Shape):
    """Where a question is looked up, by whom that was decided (rules, or a model), and why."""

    mode: Mode
    reason: str
    by: str = "rules"


class Asked(Shape):
    """What is looked for: a text, by which what is found is graded, and other wordings or parts of it. `why` is empty
    for the question as it was put."""

    text: str
    also: tuple[str, ...] = ()
    why: str = ""


class Seen(Shape):
    """A passage as it was found: which, and at which version."""

    id: str
    version: int


class Lead(Shape):
    """A page of the web on which one might look further."""

    title: str
    url: str


class Graded(Shape):
    """Whether what was found is enough, how likely, and why."""

    sufficient: bool
    probability: float
    reason: str


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
    """What is kept of a run after each step. `steps` counts those done, `last` is the last of them; `next` is None when
    it has ended. `meant` is the question with those that it follows on; `spent_s` is how long all the steps took, in
    whatever deliveries."""

    question: str
    meant: str = ""
    next: Node | None = "route"
    steps: int = 0
    last: Node | None = None
    route: Route | None = None
    asked: Asked | None = None
    found: tuple[Seen, ...] = ()
    graded: Graded | None = None
    rewrites: int = 0
    draft: Draft | None = None
    verdicts: tuple[Verdict, ...] = ()
    regenerations: int = 0
    ending: Ending | None = None
    leads: tuple[Lead, ...] = ()
    notes: tuple[str, ...] = ()
    spent_s: float = 0.0

    def noting(self, *notes: str) -> "Run":
        """The same with these notes, each once."""
        return self.model_copy(update={"notes": tuple(dict.fromkeys((*self.notes, *notes)))})


def routed(run: Run, route: Route, asked: Asked) -> Run:
    """After `route`."""
    return _done(run, "retrieve", route=route, asked=asked, meant=asked.text if asked.why else run.question)


def retrieved(run: Run, found: tuple[Seen, ...]) -> Run:
    """After `retrieve`."""
    return _done(run, "evaluate", found=found)


def evaluated(run: Run, graded: Graded, rewritten: Asked | None, late: bool) -> Run:
    """After `evaluate`: go on, look again with other words, or end without an answer."""
    if graded.sufficient:
        return _done(run, "generate", graded=graded)
    if rewritten is None or run.rewrites >= MAX_REWRITES or late:
        return _done(run, None, graded=graded, ending="insufficient_evidence")
    return _done(run, "retrieve", graded=graded, asked=rewritten, rewrites=run.rewrites + 1)


def generated(run: Run, draft: Draft) -> Run:
    """After `generate`: a draft is checked; one whose author found no answer ends the run."""
    if draft.declined:
        return _done(run, None, draft=draft, ending="insufficient_evidence")
    return _done(run, "validate", draft=draft)


def validated(run: Run, verdicts: tuple[Verdict, ...], late: bool) -> Run:
    """After `validate`: an answer, a second draft, or what was found as it is: whoever takes the step puts that in the
    place of the draft."""
    if verdicts and all(verdict.supported for verdict in verdicts):
        return _done(run, None, verdicts=verdicts, ending="answered")
    if run.regenerations >= MAX_REGENERATIONS or late:
        return _done(run, None, verdicts=verdicts, ending="fallback")
    return _done(run, "generate", verdicts=verdicts, regenerations=run.regenerations + 1)


def lost(run: Run) -> Run:
    """What was found is not there any more as it was: it is looked for again."""
    asked = (run.asked or Asked(text=run.question)).model_copy(update={"why": "what was found has changed since"})
    gone = {"found": (), "graded": None, "draft": None, "verdicts": (), "ending": None}
    return run.model_copy(update={"next": "retrieve", "asked": asked, **gone})


def failed(run: Run, node: Node, why: str) -> Run:
    """A step could not be taken, or not be kept: the rules say where to look, and what was found serves as it is."""
    noted = run.noting(f"{node} failed: {why}")
    match node:
        case "route":
            return routed(noted, Route(mode="hybrid", reason=f"routing failed: {why}"), Asked(text=run.question))
        case "retrieve" | "evaluate":
            return _done(noted, None, ending="insufficient_evidence")
        case "generate" | "validate":
            return _done(noted, None, ending="fallback")
        case _:
            assert_never(node)


def _done(run: Run, next: Node | None, **changes: object) -> Run:
    return run.model_copy(update={"next": next, "steps": run.steps + 1, "last": run.next, **changes})

"""Results of work on a task: an answer, a proposal or a stop."""

from dataclasses import dataclass, replace

from counterpoint.developer.evidence.downstream import with_downstream
from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.policies.assessment import Assessment
from counterpoint.developer.policies.proposals import Proposal
from counterpoint.proto.findings import Findings, Objection
from counterpoint.proto.messages import Shape
from counterpoint.proto.plans import PlanDocument
from counterpoint.proto.tasks import EscalationCode, Need, SubmitTask


@dataclass(frozen=True)
class AnswerResult:
    """An answer: a text of quotes, or a plan, of which `claim` is the part that rests on what it cites."""

    text: str
    reasoning: str
    findings: Findings
    claim: str | None = None


@dataclass(frozen=True)
class ProposalResult:
    """A proposal with its reasoning and findings."""

    proposal: Proposal
    reasoning: str
    findings: Findings


@dataclass(frozen=True)
class StopResult:
    """A stop until `needs` are met. The manager fills in an empty `how`. `plans` are documents about what is
    missing."""

    code: EscalationCode
    reasoning: str
    findings: Findings
    needs: tuple[Need, ...]
    text: str | None = None
    plans: tuple[PlanDocument, ...] = ()


Result = AnswerResult | ProposalResult | StopResult


class ModelReview(Shape):
    """The objections of a model to a result that the rules accept, and in `note` how it reviewed."""

    model: str | None = None
    objections: tuple[Objection, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Conclusion:
    """The decision about a task: evidence, assessment and result.

    `model` wrote the result, if a model did; `alternative` is then the act of the rules in whose place it is, and
    `beside` the action of the rules. `review` is that of a model, `wanted_search`
    the words that would be searched for in the web with an approval.
    """

    evidence: Evidence
    assessment: Assessment
    result: Result
    model: str | None = None
    alternative: str | None = None
    beside: str | None = None
    review: ModelReview | None = None
    wanted_search: str | None = None


def conclusion_of(task: SubmitTask, evidence: Evidence, assessment: Assessment, result: Result) -> Conclusion:
    """Return the conclusion, with the downstream rows of the target in its findings."""
    findings = with_downstream(result.findings, task, evidence.downstream)
    return Conclusion(evidence, assessment, replace(result, findings=findings))

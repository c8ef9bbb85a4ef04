"""Assessments: how far the evidence for a task carries, and whether work may go on with it."""

from dataclasses import dataclass, replace

from counterpoint.developer.evidence.calibration import Calibration
from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.evidence.lessons import proven_fixes, similar_success
from counterpoint.developer.evidence.likeness import RECOGNISED
from counterpoint.developer.excerpts.answers import grade_answer
from counterpoint.developer.excerpts.relevance import Grade
from counterpoint.developer.policies.confidence import band, below_high, confidence_of, confidence_terms, weaknesses
from counterpoint.developer.policies.procedures import Procedure, procedures
from counterpoint.developer.policies.proposals import spoken_by_agent
from counterpoint.proto.decisions import Confidence
from counterpoint.proto.tasks import OverrideGiven, TaskDelegated

WAIVING = frozenset({"agent", "person", "calling_llm", "human"})
"""Kinds of principal whose override stands in for the developer's own confidence."""


@dataclass(frozen=True)
class Assessment:
    """The quality of the evidence, for questions with its grade, and the principal that waived the gate, if any did."""

    confidence: Confidence
    grade: Grade | None
    waived_by: str | None
    reasoning: str
    caveats: tuple[str, ...] = ()
    procedures: tuple[Procedure, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether work may go on: a procedure that is likely to answer is enough."""
        if self.waived_by or self.answered:
            return True
        return self.grade.sufficient if self.grade else self.confidence.band != "low"

    @property
    def answered(self) -> bool:
        """Whether a procedure is likely to answer, and no system is named that nobody has a provider for."""
        inputs = self.confidence.terms
        provided = inputs is None or inputs.provider_exists is not False
        return provided and any(procedure.likely for procedure in self.procedures)

    @property
    def offered(self) -> tuple[Procedure, ...]:
        """The procedures that may be proposed: below the gate only those that are likely to answer."""
        sure = self.waived_by is not None or self.confidence.band != "low"
        return tuple(procedure for procedure in self.procedures if procedure.likely or sure)


def assess(message: TaskDelegated, evidence: Evidence, calibration: Calibration) -> Assessment:
    """Assess the evidence. A question is gated by its grade and carries that probability, every other task by its
    confidence. An override by a principal that may vouch waives the gate, and the assessment says so."""
    waived = _voucher(message.override)
    if message.lane == "answer":
        grade = grade_answer(message.task.description, evidence.answers, calibration.answer, evidence.neighbours)
        reached = band(grade.probability) if grade.sufficient else "low"
        assessed = Confidence(score=round(grade.probability, 4), band=reached)
        return _waivable(Assessment(assessed, grade, waived, grade.reason), message.override)
    fixes = proven_fixes(evidence.attempts)
    recognised = message.lane == "investigate" and any(fix.likeness >= RECOGNISED for fix in fixes)
    # Repeating an act that has worked builds nothing, so no provider is needed for it.
    provider = None if recognised else evidence.providers.exists
    inputs = confidence_terms(evidence.found, provider, similar_success(evidence.attempts), calibration.topic, fixes)
    assessed = confidence_of(inputs)
    reasoning = (
        f"confidence {assessed.score:.2f} ({assessed.band}): similarity {inputs.rag_similarity:.2f}, "
        f"{inputs.rag_hits} sources, provider {_word(inputs.provider_exists)}, "
        f"similar success {_word(inputs.similar_dag)}"
    )
    answering = _procedures(message, evidence) if message.lane == "investigate" else ()
    if answering:
        best = answering[0]
        reasoning += f"; {best.source} contains the answer with a likelihood of {best.likelihood:.2f}"
        reasoning += f", because it names {best.code}" if best.code else ""
    made = Assessment(assessed, None, waived, reasoning, weaknesses(assessed), answering)
    return _waivable(made, message.override)


def _procedures(message: TaskDelegated, evidence: Evidence) -> tuple[Procedure, ...]:
    task = message.task
    return procedures(
        "\n".join(filter(None, (task.description, task.error_message))), evidence.found, evidence.neighbours
    )


def _waivable(assessment: Assessment, override: OverrideGiven | None) -> Assessment:
    if not assessment.waived_by:
        return assessment
    if spoken_by_agent(override):
        assessment = replace(
            assessment,
            confidence=below_high(assessment.confidence),
            caveats=(
                *assessment.caveats,
                f"{assessment.waived_by} is an agent, and no trusted person has confirmed its statement",
            ),
        )
    return replace(
        assessment,
        reasoning=f"{assessment.reasoning}; the confidence gate is bypassed by the override of {assessment.waived_by}",
        caveats=(*assessment.caveats, f"the confidence gate was bypassed by an override of {assessment.waived_by}"),
    )


def _voucher(override: OverrideGiven | None) -> str | None:
    """The principal that answers for going on without confidence, if any does."""
    if override and (override.confidence_override or override.by_kind in WAIVING):
        return override.by
    return None


def _word(value: bool | str) -> str:
    return value if isinstance(value, str) else ("yes" if value else "no")

"""Assessments: the quality of the evidence for a task, and whether work may continue."""

from dataclasses import dataclass, replace

from counterpoint.developer.evidence.calibration import Calibration
from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.evidence.lessons import fixed_errors, proven_fixes, similar_success
from counterpoint.developer.evidence.likeness import RECOGNISED
from counterpoint.developer.excerpts.answers import QuestionHits
from counterpoint.developer.excerpts.relevance import Grade
from counterpoint.developer.language.codes import common_codes
from counterpoint.developer.policies.confidence import band, below_high, confidence_of, confidence_terms, weaknesses
from counterpoint.developer.policies.procedures import Procedure, procedures
from counterpoint.developer.policies.proposals import is_agent_override, is_left_out
from counterpoint.proto.decisions import Confidence
from counterpoint.proto.overrides import OverrideGiven
from counterpoint.proto.tasks import TaskDelegated
from counterpoint.proto.words import quantity

WAIVING_KINDS = frozenset({"agent", "person", "calling_llm", "human"})
"""Kinds of principals whose override replaces the confidence gate."""


@dataclass(frozen=True)
class Assessment:
    """The quality of the evidence, the grade for questions, and the principal that waived the gate, if any."""

    confidence: Confidence
    grade: Grade | None
    waived_by: str | None
    reasoning: str
    caveats: tuple[str, ...] = ()
    procedures: tuple[Procedure, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether work may continue; a likely procedure suffices."""
        if self.waived_by or any(procedure.likely for procedure in self.procedures):
            return True
        return self.grade.sufficient if self.grade else self.confidence.band != "low"

    @property
    def offered(self) -> tuple[Procedure, ...]:
        """The procedures that may be proposed; below the gate only likely ones."""
        sure = self.waived_by is not None or self.confidence.band != "low"
        return tuple(procedure for procedure in self.procedures if procedure.likely or sure)


def assess(message: TaskDelegated, evidence: Evidence, calibration: Calibration) -> Assessment:
    """Assess the evidence. A question is gated by its grade, every other task by its confidence. An override by a kind
    in `WAIVING_KINDS` waives the gate, which the assessment records."""
    waived = _waiving_principal(message.override)
    if message.lane == "answer":
        found = QuestionHits(message.task.description, evidence.answers, evidence.neighbours)
        grade = found.grade(calibration.answer)
        reached = band(grade.probability) if grade.sufficient else "low"
        assessed = Confidence(score=round(grade.probability, 4), band=reached)
        return _waivable(Assessment(assessed, grade, waived, grade.reason), message.override)
    fixes = proven_fixes(evidence.attempts)
    recognised = message.lane == "investigate" and any(fix.likeness >= RECOGNISED for fix in fixes)
    # To repeat a successful act no provider is needed.
    provider = None if recognised else evidence.providers.exists
    inputs = confidence_terms(evidence.found, provider, similar_success(evidence.attempts), calibration.topic, fixes)
    assessed = confidence_of(inputs)
    reasoning = (
        f"confidence {assessed.score:.2f} ({assessed.band}): similarity {inputs.rag_similarity:.2f}, "
        f"{quantity(inputs.rag_hits, 'source')}, provider {_word(inputs.provider_exists)}, "
        f"similar success {_word(inputs.similar_dag)}"
    )
    answering = _procedures(message, evidence) if message.lane == "investigate" else ()
    if answering:
        best = answering[0]
        reasoning += f"; {best.source} contains the answer with a likelihood of {best.likelihood:.2f}"
        reasoning += f", because it names {best.code}" if best.code else ""
    made = Assessment(assessed, None, waived, reasoning, weaknesses(assessed), answering)
    return _waivable(made, message.override)


def under_constraints(message: TaskDelegated, assessment: Assessment) -> Assessment:
    """Return an assessment that states the constraints of earlier overrides, which hold for every later proposal.

    The reviewer compares those that forbid an act. What it has left out is stated too.
    """
    quoted = message.override.constraints if message.override else ()
    caveats = [
        f"constraint of {each.by} for this task: “{each.text}”"
        for each in message.constraints
        if each.text not in quoted
    ]
    caveats += [f"an act was left out: {each.reason}" for each in message.objections if each.leave_out]
    return replace(assessment, caveats=(*assessment.caveats, *caveats)) if caveats else assessment


def _procedures(message: TaskDelegated, evidence: Evidence) -> tuple[Procedure, ...]:
    task = message.task
    failure = "\n".join(filter(None, (task.description, task.error_message)))
    common = common_codes(fixed_errors(evidence.attempts))
    found = procedures(failure, evidence.found, evidence.neighbours, common)
    return tuple(each for each in found if not is_left_out(each.text, message))


def _waivable(assessment: Assessment, override: OverrideGiven | None) -> Assessment:
    if not assessment.waived_by:
        return assessment
    if is_agent_override(override):
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


def _waiving_principal(override: OverrideGiven | None) -> str | None:
    """Return the principal that waives the gate, if any."""
    if override and (override.confidence_override or override.by_kind in WAIVING_KINDS):
        return override.by
    return None


def _word(value: bool | str) -> str:
    return value if isinstance(value, str) else ("yes" if value else "no")

"""The step in which a model reviews a result beside the rules."""

import hashlib
from dataclasses import replace

from counterpoint.client import Gateway, Memory, record
from counterpoint.developer.excerpts.relevance import TRUSTED
from counterpoint.developer.language.storable import storable
from counterpoint.developer.policies.model_review import objections_of, review_prompt, reviewable, sentences
from counterpoint.developer.policies.results import Conclusion, ModelReview
from counterpoint.proto.errors import Denied, Permanent, Transient
from counterpoint.proto.memory import Commit, Get, Write
from counterpoint.proto.messages import Shape
from counterpoint.proto.tasks import TaskDelegated
from counterpoint.proto.words import quantity

KEY = "judge"
"""The key of the call and the name of the step."""
DEADLINE_S = 10.0
MAX_TOKENS = 300


class KeptReview(Shape):
    """A review by a model as in its checkpoint. `result` is the hash of the reviewed sentences."""

    result: str
    review: ModelReview


async def with_review(message: TaskDelegated, memory: Memory, conclusion: Conclusion, gateway: Gateway) -> Conclusion:
    """Return a conclusion with the objections of a model, if one is named for reviews and may review this result.

    They are committed before the result, so a redelivery has the same. Raises `Transient` or `Denied`.
    """
    if gateway.model is None or not reviewable(message, conclusion):
        return conclusion
    checkpoint, task = await memory.query(
        Get(store="checkpoints", id=memory.id(KEY)), Get(store="tasks", id=message.task_id)
    )
    reviewed = hashlib.sha256("\n".join(sentences(conclusion)).encode()).hexdigest()
    if checkpoint.items:
        kept = record(checkpoint.items[0], KeptReview)
        return replace(conclusion, review=kept.review) if kept.result == reviewed else conclusion
    if not task.items or task.items[0].integrity < TRUSTED:
        return conclusion  # Nobody vouches for the words of the task.
    review = await _review(message, memory, conclusion, gateway)
    body = KeptReview(result=reviewed, review=review).model_dump(mode="json")
    await memory.step(
        Commit(step=KEY, last=False, writes=(Write(store="checkpoints", id=memory.id(KEY), body=body, expect=0),))
    )
    return replace(conclusion, review=review)


async def _review(message: TaskDelegated, memory: Memory, conclusion: Conclusion, gateway: Gateway) -> ModelReview:
    try:
        reply = await gateway.generate(
            memory,
            review_prompt(message, conclusion),
            key=KEY,
            deadline_s=DEADLINE_S,
            max_tokens=MAX_TOKENS,
            as_json=True,
        )
    except (Permanent, Denied, Transient) as error:
        return ModelReview(note=f"the model was not available: {error}")
    model, objections = reply.usage.model, objections_of(storable(reply.text), message, conclusion)
    if objections is None:
        return ModelReview(model=model, note=f"the reply of {model} could not be used")
    said = f"{model} has {quantity(len(objections), 'objection')}" if objections else f"{model} has no objection"
    return ModelReview(model=model, objections=objections, note=said)

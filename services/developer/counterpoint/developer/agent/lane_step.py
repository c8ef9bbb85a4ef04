"""The step in which a model may move a task to the lane of questions, beside the verdict of the rules."""

from counterpoint.client import Gateway, Memory, act, decide, put, record, send
from counterpoint.developer.agent.judge import without_links
from counterpoint.developer.excerpts.relevance import TRUSTED
from counterpoint.developer.language.storable import storable
from counterpoint.developer.policies.commits import AGENT
from counterpoint.developer.policies.lane_choice import choice_of, lane_prompt, may_be_question
from counterpoint.proto.errors import Denied, Permanent, Transient
from counterpoint.proto.memory import Commit, Get, Write
from counterpoint.proto.messages import Shape
from counterpoint.proto.tasks import TaskDelegated

KEY = "lane"
"""The key of the call and the name of the step."""
DEADLINE_S = 10.0
MAX_TOKENS = 200


class ChosenLane(Shape):
    """A lane that was chosen, as in its checkpoint, with the reason in words."""

    lane: str
    reason: str
    model: str | None = None


async def choose_lane(message: TaskDelegated, memory: Memory, gateway: Gateway) -> TaskDelegated:
    """Return the task in its lane: that of the rules, or that of questions if a model may choose and quotes one.

    The choice is committed before the work begins, so a redelivery has the same. Raises `Transient` or `Denied`.
    """
    if gateway.model is None or not may_be_question(message):
        return message
    checkpoint, task = await memory.query(
        Get(store="checkpoints", id=memory.id(KEY)), Get(store="tasks", id=message.task_id)
    )
    if checkpoint.items:
        return _in_lane(message, memory, record(checkpoint.items[0], ChosenLane))
    if not task.items or task.items[0].integrity < TRUSTED:
        return message  # Nobody vouches for the words of the task.
    chosen = await _choice(message, memory, gateway)
    await memory.step(_commit(message, memory, chosen))
    return _in_lane(message, memory, chosen)


async def _choice(message: TaskDelegated, memory: Memory, gateway: Gateway) -> ChosenLane:
    rules = f"the rules say {message.lane}"
    try:
        reply = await gateway.generate(
            memory, lane_prompt(message), key=KEY, deadline_s=DEADLINE_S, max_tokens=MAX_TOKENS, as_json=True
        )
    except (Permanent, Denied, Transient) as error:
        return ChosenLane(lane=message.lane, reason=f"{rules}; the model was not available: {error}")
    model, choice = reply.usage.model, choice_of(storable(reply.text), message)
    if choice is None:
        return ChosenLane(lane=message.lane, reason=f"{rules}; the reply of {model} could not be used", model=model)
    if choice.lane == message.lane:
        return ChosenLane(lane=message.lane, reason=f"{rules}, and so does {model}", model=model)
    reason = f"{rules}; {model} says {choice.lane}, since the task asks “{without_links(choice.quote)}”"
    return ChosenLane(lane=choice.lane, reason=reason, model=model)


def _commit(message: TaskDelegated, memory: Memory, chosen: ChosenLane) -> Commit:
    decision = decide(
        memory, AGENT, "route", chosen.lane, chosen.reason, session_id=message.session_id, step=KEY
    ).model_copy(update={"model": chosen.model})
    action = act(
        memory, AGENT, "route", chosen.reason, result=chosen.lane, after=message.after, decision=decision, step=KEY
    )
    checkpoint = Write(store="checkpoints", id=memory.id(KEY), body=chosen.model_dump(mode="json"), expect=0)
    return Commit(
        step=KEY,
        last=False,
        writes=(put("actions", action.action_id, action), checkpoint),
        messages=(send(decision),),
    )


def _in_lane(message: TaskDelegated, memory: Memory, chosen: ChosenLane) -> TaskDelegated:
    after = (memory.id("action", AGENT, "route", KEY),)
    return message.model_copy(update={"lane": chosen.lane, "after": after})

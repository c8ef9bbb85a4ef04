"""Calls of replays: by the model that is asked for alone, one of those that replays may call, within their budget."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from decimal import Decimal

import pytest
from agents.gateway_world import PRICED, UNPRICED, Door, World, delegated, developer, gateway
from memory_service.house import House
from starlette.responses import JSONResponse

from counterpoint.client import Gateway
from counterpoint.client.gateway import Completion, Holder
from counterpoint.guard.policy import ModelPolicy, policy
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.memory.access.tokens import Tokens
from counterpoint.proto.errors import Denied, Permanent, Transient
from counterpoint.proto.memory import TokenPurpose
from counterpoint.proto.replays import sandbox_project
from counterpoint.proto.tasks import Budget

pytestmark = pytest.mark.xdist_group("litellm")  # its import takes seconds
OTHER, FALLBACK = "openai/gpt-4o", "openai/gpt-4.1-mini"
CENT = Budget(usd=Decimal("0.01"))
QUESTION = [{"role": "user", "content": "Why did it fail?"}]
LIMITS = ProviderLimits(models=(PRICED,), fallbacks=(FALLBACK,), replay_models=(OTHER, UNPRICED), tries=1)


@dataclass
class Replay:
    """A replay of a delivery of the developer, as memory lets it call."""

    house: House
    project: str
    budget: Budget = CENT
    job: str = "0" * 32

    async def gateway_token(self, purpose: TokenPurpose) -> str:
        return Tokens(policy(), self.house.keyring).of_replay(self.project, self.job, "developer", 1, self.budget)


async def completion(url: str, model: str, holder: Holder, key: str = "1") -> Completion:
    """The reply of a model to the question."""
    asking = Gateway(url, model=model)
    try:
        return await asking.generate(holder, QUESTION, key=key, deadline_s=10, max_tokens=100)
    finally:
        await asking.close()


@pytest.fixture
async def url(door: Door, outside: World) -> AsyncIterator[str]:
    async with gateway(door, LIMITS) as (made, _):
        yield made


async def test_a_model_of_replays_is_called_for_replays_alone(
    url: str, door: Door, project: str, outside: World
) -> None:
    replaying = Replay(door.house, project)
    for key, model in enumerate((OTHER, PRICED, FALLBACK)):
        made = await completion(url, model, replaying, str(key))
        assert (made.text, made.usage.model) == (outside.text, model)
    at_work = developer(door, await delegated(door.house, project, "t-1"))
    for model in (OTHER, FALLBACK):
        with pytest.raises(Denied, match="model"):
            await completion(url, model, at_work)
    with pytest.raises(Denied, match=f"replays may call: {PRICED}, {FALLBACK}, {OTHER}"):
        await completion(url, "openai/o3", replaying, "other")
    assert [each["model"] for each in outside.seen] == ["gpt-4o", "gpt-4o-mini", "gpt-4.1-mini"]


async def test_no_fallback_answers_in_the_place_of_the_model(
    url: str, door: Door, project: str, outside: World
) -> None:
    outside.answers = [JSONResponse({"error": {"message": "busy"}}, 503)]
    with pytest.raises(Transient):
        await completion(url, OTHER, Replay(door.house, project))
    assert len(outside.seen) == 1


async def test_a_replay_has_the_budget_of_its_token(url: str, door: Door, project: str, outside: World) -> None:
    poor, richer = (Replay(door.house, project, Budget(tokens=tokens)) for tokens in (100, 2000))
    with pytest.raises(Denied, match="the budget of the replay"):
        await completion(url, UNPRICED, poor)
    with pytest.raises(Denied, match="whose price is known"):
        await completion(url, UNPRICED, Replay(door.house, project))
    assert not outside.seen
    await completion(url, UNPRICED, richer)
    spent = await door.house.body(project, "spend", f"job:{poor.job}")
    assert spent is not None
    assert (spent["limit_tokens"], spent["spent_tokens"], spent.get("refused")) == (2000, 25, None)


async def test_a_gateway_may_be_there_for_replays_alone(door: Door, project: str, outside: World) -> None:
    limits = ProviderLimits(replay_models=(OTHER,))
    assert limits
    async with gateway(door, limits) as (url, _):
        assert (await completion(url, OTHER, Replay(door.house, project))).text == outside.text
        at_work = developer(door, await delegated(door.house, project, "t-1"))
        with pytest.raises(Permanent, match="no_model"):
            await completion(url, OTHER, at_work)


async def test_a_project_calls_the_models_that_the_policy_permits_it(door: Door, project: str, outside: World) -> None:
    rows = {project: (FALLBACK,), f"{project}-x": (), f"{project}-y": (UNPRICED, PRICED)}
    async with gateway(door, replace(LIMITS, policy=ModelPolicy(projects=rows))) as (url, _):
        at_work = developer(door, await delegated(door.house, project, "t-1"))
        assert (await completion(url, PRICED, at_work)).usage.model == FALLBACK
        for sandbox, model in ((project, OTHER), (f"{project}-x", PRICED), (f"{project}-y", OTHER)):
            with pytest.raises(Denied, match=f"the policy permits project {sandbox}-replay, not {model}"):
                await completion(url, model, Replay(door.house, sandbox_project(sandbox)))
        allowed = Replay(door.house, sandbox_project(f"{project}-y"), Budget(tokens=2000))
        assert (await completion(url, UNPRICED, allowed)).usage.model == UNPRICED
        unnamed = Replay(door.house, sandbox_project(f"{project}-z"))
        assert (await completion(url, OTHER, unnamed)).usage.model == OTHER
    assert [each["model"] for each in outside.seen] == ["gpt-4.1-mini", "nobody-knows", "gpt-4o"]

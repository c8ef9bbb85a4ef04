"""Gateway tokens: for the task of a service, for tools of principals, and for jobs of memory's own."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from counterpoint.guard.capabilities import Grant, Keyring, mint
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.proto.errors import Denied, ErrorCode
from counterpoint.proto.memory import TokenPurpose
from counterpoint.proto.principals import Principal
from counterpoint.proto.tasks import Budget

_JOB_LIFE_S = 300.0


class Tokens:
    """Issues gateway tokens; `provider_clearance` is the highest label that a provider may receive."""

    def __init__(self, policy: Policy, keyring: Keyring, provider_clearance: str = "internal") -> None:
        self._policy = policy
        self._keyring = keyring
        self._clearance = policy.level(provider_clearance)

    def of_task(self, grant: Grant, purpose: TokenPurpose, label: int, life_s: float) -> str:
        """Return a token for the task of a capability, for a prompt of this label. Raises `Denied` as
        `diode.gateway`."""
        return mint(self._keyring, diode.gateway(self._policy, grant, purpose, label, self._clearance, _in(life_s)))

    def of_replay(self, project: str, job: str, service: str, label: int, budget: Budget) -> str:
        """Return a token for a replay of a service, for a prompt of this label. Raises `Denied` `label`."""
        self._check(label)
        grant = diode.gateway_of_job(
            self._policy, project, job, self._clearance, _in(_JOB_LIFE_S), service=service, budget=budget
        )
        return mint(self._keyring, grant)

    def of_editor(self, project: str, task: str, principal: Principal, label: int, life_s: float) -> str:
        """Return a token for the tools of a principal that works on a task of this label. Raises `Denied` `label`."""
        self._check(label)
        grant = diode.gateway_of_editor(self._policy, project, task, principal, self._clearance, _in(life_s))
        return mint(self._keyring, grant)

    def of_job(self, project: str, job: str, label: int) -> "JobHolder":
        """Return the holder of gateway tokens for a job of memory's own, for texts of this label."""
        return JobHolder(self, project, job, label)

    def minted_of_job(self, project: str, job: str, label: int) -> str:
        """Return a token for a job. Raises `Denied` `label`."""
        self._check(label)
        return mint(self._keyring, diode.gateway_of_job(self._policy, project, job, self._clearance, _in(_JOB_LIFE_S)))

    def _check(self, label: int) -> None:
        if label > self._clearance:
            raise Denied(ErrorCode.LABEL, f"texts labelled {self._policy.labels[self._clearance]} at most")


@dataclass(frozen=True, slots=True)
class JobHolder:
    """Holder of gateway tokens for one job: a new token for each call."""

    tokens: Tokens
    project: str
    job: str
    label: int

    async def gateway_token(self, purpose: TokenPurpose) -> str:
        """Return a token for models; a job of memory's own has none for the web."""
        if purpose != "model":
            raise Denied(ErrorCode.GATEWAY, "a task; a job has no access to web search")
        return self.tokens.minted_of_job(self.project, self.job, self.label)


def _in(life_s: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=life_s)

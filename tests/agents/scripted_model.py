"""Investigations of a failure at a memory in RAM, with a model that follows a script."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agents.obedient import proposal
from agents.question_runs import Book

from counterpoint.client import Gateway
from counterpoint.client.gateway import Completion, Usage
from counterpoint.developer.handlers import OFFLINE, handle_delegated
from counterpoint.developer.settings import Deadlines
from counterpoint.proto.errors import CounterpointError, Permanent, Problem
from counterpoint.proto.tasks import SubmitTask, TaskDelegated, TaskWorked

FAILURE = "fetch_orders of orders_ingest cannot resolve ldap.internal"
ERROR = "could not resolve ldap.internal: DNS lookup timed out after 5 s"
RUNBOOK = """# Name resolution

When orders_ingest cannot resolve ldap.internal, the resolver of the cluster has lost its cache.

1. Restart the resolver with `systemctl restart named`.
2. Check that `dig ldap.internal` answers.
"""
ACT = "Restart the resolver with `systemctl restart named`."
OTHERS = {
    "coffee.md": "The coffee machine is descaled on Mondays.",
    "warehouse.md": "# Warehouse\n\n- Flush the name cache of the ldap.internal hosts with `nscd -i hosts`.\n",
}
Script = Callable[[Sequence[Mapping[str, str]]], str] | str | CounterpointError


class ScriptedGateway(Gateway):
    """A gateway whose model follows a script: the replies in their order, the last one for ever. Outcomes are kept by
    their keys, as the real one keeps them; `asked` are the prompts that went outside."""

    def __init__(self, *script: Script, finish: str = "stop") -> None:
        super().__init__("http://nowhere", model="m")
        self.script = list(script)
        self.finish = finish
        self.asked: list[Sequence[Mapping[str, str]]] = []
        self.kept: dict[str, tuple[Any, Completion]] = {}
        self.after: Callable[[str], Any] = lambda what: None

    async def generate(  # type: ignore[override]
        self, holder: Any, messages: Sequence[Mapping[str, str]], *, key: str, deadline_s: float, **more: Any
    ) -> Completion:
        assert deadline_s > 0
        if key in self.kept:
            known, reply = self.kept[key]
            if known != messages:
                raise Permanent("key_reused", (Problem(field="key", problem="was used for another request"),))
            return reply
        self.asked.append(messages)
        said = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(said, CounterpointError):
            raise said
        text = said if isinstance(said, str) else said(messages)
        self.kept[key] = messages, Completion(text=text, finish=self.finish, usage=Usage(model="m", input_tokens=1))
        self.after("model")
        return self.kept[key][1]


def shelf_of(documents: Mapping[str, str] = OTHERS, **integrity: int) -> Book:
    """A memory with the runbook and other documents, and the record of the task."""
    made = Book()
    made.ingest("runbook.md", RUNBOOK)
    for name, text in documents.items():
        made.ingest(name, text, integrity.get(name.partition(".")[0], 2))
    made.put("tasks", "t", {"task_id": "t"})
    return made


def failure(**fields: Any) -> TaskDelegated:
    """A failure, delegated."""
    more = {name: fields.pop(name) for name in ("purpose", "attempt", "constraints", "objections") if name in fields}
    given = {"description": FAILURE, "error_message": ERROR, **fields}
    values: dict[str, Any] = {
        "task_id": "t", "project": "shop", "session_id": "s", "attempt": 1, "lane": "investigate", "after": ("before",),
        "task": SubmitTask(kind="troubleshoot", **given), **more,
    }  # fmt: skip
    return TaskDelegated.model_validate(values)


async def delivered(
    shelf: Book, gateway: Gateway = OFFLINE, message: TaskDelegated | None = None, deadline_s: float = 60.0
) -> TaskWorked:
    """One delivery, as the bus takes it: the handler, then its commit. Its result."""
    memory = shelf.delivered("message", "t")
    deadlines = Deadlines(investigation_s=deadline_s)
    await memory.step(await handle_delegated(message or failure(), memory, gateway, None, deadlines))
    return shelf.worked()


def proposes(has: str = "Restart", **parts: str) -> Script:
    """A model that proposes a line of a document."""
    return lambda messages: proposal(messages, has=has, **parts)

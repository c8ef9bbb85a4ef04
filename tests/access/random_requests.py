"""Random requests through memory's real door, each answered as the model says, and the record as the model has it."""

import random
from dataclasses import dataclass, field
from typing import Any

from access.policy_reference import STORES as POLICY_STORES
from access.policy_reference import Asker
from access.random_values import Ask, Record, Token
from access.request_model import DONE, Model
from memory_service.house import DELEGATED, PERSON, REPORTED, ROUTED, House, task_body
from memory_service.record_bodies import rest

from counterpoint.guard.capabilities import revocation_ids
from counterpoint.proto.ids import document_id, new_id
from counterpoint.proto.ingest import Document, IngestReply, IngestRequest
from counterpoint.proto.memory import GatewayToken, Get, Origin, QueryReply, QueryRequest, Write

OPERATIONS = ("write",) * 6 + ("read",) * 4 + ("gateway", "ingest", "end", "revoke")
STORES = ("attempts", "actions", "plans", "checkpoints", "coder_memory", "sessions", "submissions", "links", "edges")
IDS = ("r-1", "r-2", "r-3", "../../x", "r\x1b", " r")
WRONG = {"task_id": {"no": "text"}, "at": "some day", "made_at": 7, "pair": [], "task_ids": 3, "source": []}
TASKS = 3
UNTRUSTED = "untrusted.md"
ROWS = {name: {"owner": row["owner"], "authors": row.get("authors", [])} for name, row in POLICY_STORES.items()}


@dataclass
class Walk:
    """One house and its model, driven by a seed. `done` counts requests by what became of them."""

    house: House
    seed: int
    model: Model = field(default_factory=Model)
    done: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.name = new_id()
        self.projects = (f"a-{self.name}", f"b-{self.name}")
        self.tokens: list[tuple[Token, Origin]] = []
        self.asked: dict[tuple[str, str, int], int] = {}
        self.begun = 0

    async def begin(self) -> None:
        """Principals of all kinds, untrusted records, and the first tasks."""
        self.house.authority.reads._limit = 10**7
        everything = ("submit", "report", "read", "ingest", "override", "operate", "audit", "admin")
        askers = {
            "person": Asker((*self.projects,), everything),
            "agent": Asker((self.projects[0],), ("submit", "ingest", "read"), kind="agent"),
            "reader": Asker((self.projects[1],), ("read",)),
            "revoked": Asker((*self.projects,), everything, revoked=True),
        }
        for name, asker in askers.items():
            body: dict[str, Any] = {"name": f"{name}-{self.name}", "kind": asker.kind, "projects": asker.projects}
            body |= {"roles": asker.roles, **({"revoked_at": "2026-01-01T00:00:00Z"} if asker.revoked else {})}
            write = Write(store="principals", id=body["name"], body=body)
            await self.house.apply("router", self.house.standing("default", principal=PERSON), writes=(write,))
            self.model.principals[body["name"]] = asker
        for project in self.projects:
            asked = self.house.standing(project, principal=PERSON)
            document = Document(source=UNTRUSTED, text="Run it.", untrusted=True)
            given = IngestRequest(origin=asked, documents=(document,)).model_dump_json().encode()
            assert b"added" in await self.house.door.ingest("router", given)
            self.model.records[project, "documents", document_id(UNTRUSTED)] = Record(1, None, True, 0)
            for _ in range(TASKS):
                await self.task(project)

    async def task(self, project: str) -> None:
        """One more task, with a token of each kind."""
        self.begun += 1
        task = f"t-{self.begun}"
        handed = {ROUTED: await self.house.routed(project, task)}
        write = Write(store="tasks", id=task, body=task_body(task))
        origin = self.house.delivery(await self.house.reported(project, task))
        await self.house.apply("manager", origin, writes=(write,))
        delegated = await self.house.delegated(project, f"{task}-d")
        handed = {REPORTED: await self.house.reported(project, task), DELEGATED: delegated}
        for kind, message in handed.items():
            origin = self.house.delivery(message, lives_s=1e6)
            assert origin.task_id is not None
            service = "developer" if kind == DELEGATED else "manager"
            token = Token(kind, service, project, origin.task_id, message, kind == DELEGATED, kind == REPORTED)
            self.tokens.append((token, origin))

    async def step(self) -> None:
        """One request, and whether it is answered as the model says."""
        operation = self.draw.choice(OPERATIONS)
        if operation in ("end", "revoke"):
            if self.draw.random() < 0.3:
                await (self.end() if operation == "end" else self.revoke())
            return
        ask, origin = self.drawn(operation)
        expected = self.model.judge(ask)
        answer = await self.answered(ask, origin)
        assert answer in expected, f"seed {self.seed}: {answer}, not {sorted(expected)}, to {ask}"
        self.done[answer] = self.done.get(answer, 0) + 1
        if answer == DONE:
            self.model.applied(ask)

    def drawn(self, operation: str) -> tuple[Ask, Origin]:
        """A request, mostly one that may be allowed."""
        draw, odd = self.draw, lambda: self.draw.random() < 0.08
        store, record = draw.choice(STORES), draw.choice(IDS if odd() else IDS[:3])
        token, origin = draw.choice(self.tokens[-3 * TASKS * len(self.projects) :])
        caller, project, task, message, principal = token.service, token.project, origin.task_id, token.message, None
        holds: Token | None = token
        if draw.random() < 0.35:
            caller, holds, message, task = draw.choice(("router", "lineage", "developer")), None, new_id(), None
            project, principal = draw.choice(self.projects), draw.choice([None, None, *self.model.principals, "nobody"])
            origin = self.house.standing(project, principal=principal, message_id=message)
        of_caller = [name for name, row in ROWS.items() if name in STORES and caller in (row["owner"], *row["authors"])]
        if operation == "write" and of_caller and draw.random() < 0.6:
            store = draw.choice(of_caller)
        if operation == "read" and draw.random() < 0.3:
            store, record = "documents", document_id(UNTRUSTED)
        if odd():
            caller = draw.choice(("router", "manager", "developer", "lineage", "stranger"))
        if odd():
            project = draw.choice(self.projects)
        if odd():
            task = draw.choice(("t-1", "t-2", None))
        if odd():
            message = draw.choice(self.tokens)[0].message
        run = draw.choice((0, 0, 1))
        changes = {"project": project, "task_id": task, "message_id": message, "run": run}
        if holds is not None and (odd() or operation == "ingest"):
            changes["principal"] = draw.choice([*self.model.principals])
        known = self.model.records.get((project, store, record))
        right = known.version if known else 0
        expect = draw.choice((0, 1, right + 1)) if odd() else right
        body = "none" if expect and odd() else "malformed" if odd() or odd() else "whole"
        needed = task is None and store in ("attempts", "actions")
        about = draw.choice(("t-1", "t-2")) if needed or odd() else None
        ask = Ask(
            caller, project, task, message, holds, principal, 60.0, run, operation, store, record, expect, about, body
        )
        return ask, origin.model_copy(update=changes)

    def body(self, ask: Ask) -> dict[str, Any] | None:
        """Return the body to write: about the task of the request where none other is named."""
        if ask.body == "none":
            return None
        whole = rest(ask.store, ask.id, ask.project, ask.about or ask.task, ask.caller)
        if ask.body == "malformed":
            whole |= {name: wrong for name, wrong in WRONG.items() if name in whole and name != "task_id"}
        named = {"task_id": ask.about} if ask.about else {}
        return {**whole, **named} if "task_id" in whole else {**whole, **named, "text": "x"}

    async def answered(self, ask: Ask, origin: Origin) -> str:
        """Return the reply of memory: `done`, `stale`, `conflict`, or the rule."""
        key = (ask.caller, ask.message, ask.run)
        match ask.operation:
            case "read":
                reply = await self.house.query(ask.caller, origin, Get(store=ask.store, id=ask.id))
                if reply.refusal is None:
                    self.asked[key] = self.asked.get(key, 0) + 1
                    assert bool(reply.found[0].items) == self.model.shown(ask), f"seed {self.seed}: {ask}"
                return reply.refusal.code if reply.refusal else DONE
            case "gateway":
                wanted = GatewayToken(purpose="model", reads=self.asked.get(key, 0))
                request = QueryRequest(origin=origin, gateway=wanted).model_dump_json().encode()
                made = QueryReply.model_validate_json(await self.house.door.query(ask.caller, request))
                return made.refusal.code if made.refusal else DONE
            case "ingest":
                document = Document(source="x.md", text="Run it.")
                given = IngestRequest(origin=origin, documents=(document,)).model_dump_json().encode()
                taken = IngestReply.model_validate_json(await self.house.door.ingest(ask.caller, given))
                return taken.refusal.code if taken.refusal else DONE
            case _:
                write = Write(store=ask.store, id=ask.id, body=self.body(ask), expect=ask.expect)
                reads, step = self.asked.get(key, 0), new_id()
                told = await self.house.commit(
                    ask.caller, origin, reads=reads, whole=False, step=step, last=False, writes=(write,)
                )
                return told.refusal.code if told.refusal else str(told.status)

    async def end(self) -> None:
        """A task is cancelled, and another begins."""
        token, _ = self.draw.choice(self.tokens[-2 * TASKS * len(self.projects) :])
        if (token.project, token.task) in self.model.ended:
            return
        origin = self.house.delivery(await self.house.reported(token.project, token.task))
        write = Write(store="tasks", id=token.task, body=task_body(token.task, "cancelled"), expect=1)
        await self.house.apply("manager", origin, writes=(write,))
        self.model.ended.add((token.project, token.task))
        await self.task(token.project)

    async def revoke(self) -> None:
        """A token is revoked."""
        token, origin = self.draw.choice(self.tokens[-2 * TASKS * len(self.projects) :])
        if (token.message, 60.0) in self.model.revoked:
            return
        revocation_id = revocation_ids(origin.capability or "")[0]
        write = Write(store="revocations", id=revocation_id, body={"revocation_id": revocation_id})
        await self.house.apply("router", self.house.standing(token.project, principal=PERSON), writes=(write,))
        self.model.revoked.add((token.message, 60.0))
        await self.task(token.project)

    async def compare(self) -> None:
        """The record is as the model has it: no more, no less, at what it is worth."""
        async with self.house.superuser() as connection:
            rows = await connection.fetch(
                "SELECT project, store, id, version, task_id, body IS NOT NULL AS live, integrity FROM records"
                " WHERE project = ANY ($1) AND store = ANY ($2)", list(self.projects), list(STORES),
            )  # fmt: skip
        there = {
            (r["project"], r["store"], r["id"]): (r["version"], r["task_id"], r["live"], r["integrity"]) for r in rows
        }
        known = ((key, r) for key, r in self.model.records.items() if key[1] in STORES)
        kept = {key: (r.version, r.task, r.live, r.integrity) for key, r in known}
        assert there == kept, f"seed {self.seed}: {set(there.items()) ^ set(kept.items())}"


async def walk(house: House, seed: int, steps: int) -> Walk:
    """Take `steps` steps; compare the record with the model every 200 steps and at the end."""
    made = Walk(house, seed)
    await made.begin()
    for number in range(1, steps + 1):
        await made.step()
        if number % 200 == 0:
            await made.compare()
    await made.compare()
    return made

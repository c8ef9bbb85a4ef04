"""A model of memory's door: what becomes of a request, by the reference and the words of the contract, with nothing of
ours. It knows whose tasks, records, tokens and principals there are."""

from dataclasses import dataclass, field, replace

from access.policy_reference import STORES, Asker, Case, refusals
from access.random_values import Ask, Record

DONE, CONFLICT = "done", "conflict"
SHAPED = {"attempts", "actions", "decisions", "sessions", "links", "tasks", "edges", "runs", "jobs", "datasets"}
VOUCHED, DERIVED = 2, 1


@dataclass
class Model:
    """Model of memory's state. `worth` is the lowest integrity that a caller has read for a message, in any run."""

    principals: dict[str, Asker] = field(default_factory=dict)
    ended: set[tuple[str, str]] = field(default_factory=set)
    revoked: set[tuple[str, float]] = field(default_factory=set)
    records: dict[tuple[str, str, str], Record] = field(default_factory=dict)
    worth: dict[tuple[str, str], int] = field(default_factory=dict)

    def refusals(self, ask: Ask) -> set[str]:
        """Every rule that refuses a request; none when it is allowed."""
        token, asker = ask.token, self.principals.get(ask.principal or "")
        over = token is not None and (token.project, token.task) in self.ended
        operation = "read" if ask.operation in ("gateway", "ingest") else ask.operation
        agent = "" if operation == "read" else ask.caller
        about = ask.task if ask.body == "none" or ask.about is None else ask.about
        store = {"gateway": "tasks", "ingest": "documents"}.get(ask.operation, ask.store)
        case = Case(
            ask.caller, operation, store, token is not None, asker, project=ask.project, record_project=ask.project,
            task=ask.task, about=about, message=ask.message, lives_s=ask.lives_s, agent=agent, ended=over,
        )  # fmt: skip
        if token is not None:
            of = {"inbound": token.type, "audience": token.service, "token_project": token.project}
            case = case._replace(**of, token_task=token.task, token_message=token.message)
        wrong = refusals(case)
        if token is None and ask.principal is not None and (asker is None or asker.revoked):
            wrong |= {"principal", "role"}
        if token is not None and (token.message, ask.lives_s) in self.revoked:
            wrong.add("revoked")
        if ask.operation == "gateway":
            wrong = (wrong - {"store", "own", "foreign", "label"}) | ({"ended"} if over else set())
            wrong |= {"task"} if token is None else set()
            return wrong | ({"gateway"} if ask.caller not in ("developer", "manager") else set())
        if ask.operation == "ingest":
            wrong = wrong & {"grant", "audience", "expired", "message", "project", "task", "revoked", "principal"}
            allowed = token is None and asker is not None and "ingest" in asker.in_(ask.project)
            return wrong | (set() if allowed else {"role"})
        if ask.operation == "write":
            wrong |= self._of_record(ask)
        return wrong

    def _of_record(self, ask: Ask) -> set[str]:
        wrong, known = set(), self.records.get((ask.project, ask.store, ask.id))
        no_id = any(ord(letter) < 32 for letter in ask.id) or ask.id.startswith(("../", " "))
        if no_id or (ask.body == "malformed" and ask.store in SHAPED):
            wrong.add("invalid")
        changes = ask.expect > 0 or (known is not None and not known.live)
        mine = known is None or ask.token is None or known.task in (None, ask.token.task)
        if changes and not mine and not STORES.get(ask.store, {}).get("common"):
            wrong.add("task")
        return wrong

    def judge(self, ask: Ask) -> set[str]:
        """All that may be answered to a request: rules, `conflict`, or `done`."""
        token = ask.token
        over = token is not None and token.versioned and (token.project, token.task) in self.ended
        if wrong := self.refusals(ask) - {"foreign", "own", "label"}:
            return wrong | ({"stale"} if over and (ask.operation == "write" or "ended" in wrong) else set())
        if ask.operation == "write":
            known = self.records.get((ask.project, ask.store, ask.id))
            if over:
                return {"stale"}
            again = ask.expect == 0 and known is not None and not known.live
            if not again and ask.expect != (known.version if known else 0):
                return {CONFLICT}
        return {DONE}

    def shown(self, ask: Ask) -> bool:
        """Whether a read that is allowed shows the record."""
        known = self.records.get((ask.project, ask.store, ask.id))
        hidden = self.refusals(replace(ask, about=ask.id)) & {"foreign", "own", "label"}
        return known is not None and known.live and not hidden

    def applied(self, ask: Ask) -> None:
        """Apply an allowed request to the model."""
        key, caused = (ask.project, ask.store, ask.id), (ask.caller, ask.message)
        if ask.operation == "read" and self.shown(ask):
            self.worth[caused] = min(self.worth.get(caused, VOUCHED), self.records[key].integrity)
        if ask.operation == "write":
            asker = self.principals.get(ask.principal or "")
            own = VOUCHED if asker is not None and asker.kind != "agent" else DERIVED
            before = self.records.get(key)
            task = ask.task if ask.body == "none" or ask.about is None else ask.about
            worth = min(own, self.worth.get(caused, VOUCHED))
            version = before.version + 1 if before else 1
            self.records[key] = Record(version, task, ask.body != "none", worth)

"""The one tree of errors. The bus maps it to a delivery decision in one place (`counterpoint.bus.delivery`)."""

from pydantic import BaseModel, ConfigDict


class Problem(BaseModel):
    """One thing wrong with an input: the dotted path of the field, and what is wrong with it."""

    model_config = ConfigDict(frozen=True)

    field: str
    problem: str


class CounterpointError(Exception):
    """Anything Counterpoint raises on purpose. `refusal` is the id of memory's refusal, where that is what it was."""

    refusal: str | None = None


class Transient(CounterpointError):
    """Try again later: something needed is away, busy or not yet there."""

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class Away(Transient):
    """Memory or the bus does not answer: wait until it does."""


class Permanent(CounterpointError):
    """Trying again cannot help: the message is dead-lettered with its problems."""

    def __init__(self, code: str, problems: tuple[Problem, ...] = ()) -> None:
        detail = "; ".join(f"{p.field}: {p.problem}" for p in problems)
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        self.problems = problems


class Denied(CounterpointError):
    """Refused by a rule of the policy; `needed` says what would have been required."""

    def __init__(self, rule: str, needed: str = "") -> None:
        super().__init__(f"{rule}: needs {needed}" if needed else rule)
        self.rule = rule
        self.needed = needed


class Conflict(CounterpointError):
    """A record is at another version than the writer expected."""

    def __init__(self, store: str, record_id: str, expected: int, found: int) -> None:
        super().__init__(f"{store}/{record_id}: expected version {expected}, found {found}")
        self.store = store
        self.record_id = record_id
        self.expected = expected
        self.found = found

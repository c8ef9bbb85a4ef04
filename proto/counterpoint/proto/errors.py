"""The one tree of errors. The bus maps it to a delivery decision in one place (`counterpoint.bus.delivery`)."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class ErrorCode(StrEnum):
    """The code of a refusal, problem or dead letter. Each docstring gives the cause, then what the caller does.

    The set is open: a newer release may send a code that an older one does not know.
    """

    # Requests and messages
    INVALID = "invalid"
    """A field has an illegal value; `errors` names each one. Correct the fields."""
    MALFORMED = "malformed"
    """The body is not valid JSON, or the bearer token is not a token. Correct the body or the token."""
    TOO_LARGE = "too_large"
    """A body, record, commit or reply exceeds its size limit. Send less, or ask for fewer items."""
    TOO_MANY_STREAMS = "too_many_streams"
    """The principal has as many open event streams as one may have. Close one that is not read."""
    UNKNOWN_TYPE = "unknown_type"
    """The message type is not one that the subject or service takes. Send the type that the problem names."""
    INVALID_MESSAGE = "invalid_message"
    """A message between services has a value that its consumer cannot use.

    Correct the sender; the dead letter has the message.
    """
    INVALID_LINEAGE_EVENT = "invalid_lineage_event"
    """An OpenLineage event lacks a run or a job, or has one that cannot be read. Correct the producer."""
    NOT_FOUND = "not_found"
    """The item does not exist in this project. Check the id and the project."""
    UNKNOWN_TASK = "unknown_task"
    """The task does not exist in this project. Check the id, or submit the task first."""
    AMBIGUOUS = "ambiguous"
    """The request names no single item, and several are possible. Name one of those that `errors` lists."""
    UNKNOWN_COMMIT = "unknown_commit"
    """`as_of` names a commit that this project does not have. Name a commit of the project, or a time."""
    UNKNOWN_LANE = "unknown_lane"
    """The task is in a lane that the developer does not know. Run manager and developer at one release."""
    CONFLICT = "conflict"
    """The item changed meanwhile, or its state does not allow the request. Read it again and repeat the request."""
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    """The Idempotency-Key was used with another body. Use a new key, or send the same body."""
    AWAY = "away"
    """Memory, the bus or an engine does not answer, or its disk is full. Retry with backoff."""
    TRANSIENT = "transient"
    """A passing fault, for example a lost race or a restart. Retry with backoff."""
    UNAVAILABLE = "unavailable"
    """The service cannot reach what it needs. Retry after `Retry-After`."""
    INTERNAL = "internal"
    """An unexpected exception; the log of the service has it. Report it."""
    REFUSED = "refused"
    """The database, a provider or a service does not accept the request.

    Change the request; `errors` has the reason.
    """

    # Authentication and permissions
    UNAUTHENTICATED = "unauthenticated"
    """The request has no bearer token, or that of no valid principal.

    Send the token of a principal that is neither revoked nor expired.
    """
    ROLE = "role"
    """The principal lacks a role in the project. Ask an administrator for the role that the problem names."""
    ORIGIN = "origin"
    """The cookie of a browser came from a page of another site. Use the console, or send a bearer token."""
    PRINCIPAL = "principal"
    """The request names a principal that does not exist, is revoked or expired. Create the principal."""
    PROJECT = "project"
    """The project name is illegal, or another than the grant's. Work in the project of the grant."""
    TASK = "task"
    """The request is about another task than the grant's. Work in the task of the grant."""
    STORE = "store"
    """The policy does not give the service this right to the store. Change the policy."""
    SEND = "send"
    """The policy does not let the service send this message. Change the policy."""
    AGENT = "agent"
    """The service signs with the name of an agent that is not its own. Sign as an agent of the service."""
    LABEL = "label"
    """The data is more confidential than the reader or provider is cleared for. Ask with a higher clearance."""
    GRANT = "grant"
    """The policy gives the service no standing grant. Send the capability of the message."""
    MESSAGE = "message"
    """The inbound message is not in the log for this caller, or not that of the capability.

    Name the message that was delivered.
    """
    AUDIENCE = "audience"
    """The capability or message is meant for another service. Use it in the service that it names."""
    EXPIRED = "expired"
    """The token has expired, or ends before the call could. Have the message delivered again."""
    REVOKED = "revoked"
    """The token was revoked. Ask an administrator."""
    ATTENUATED = "attenuated"
    """The token was narrowed by its holder, and the request is outside of what is left.

    Use the token that it was made from.
    """
    SIGNATURE = "signature"
    """The token was not signed by this memory service, or was altered. Use the token as it was issued."""
    GATEWAY = "gateway"
    """The policy does not let the service use the gateway. Change the policy."""
    BUDGET = "budget"
    """The call would exceed the budget of the task, job or day. Raise the budget, or make a cheaper call."""
    NOT_APPROVED = "not_approved"
    """The policy refuses this act, or it needs the approval of a person. Approve it, or do without it."""
    MODEL = "model"
    """The gateway does not offer this model, or the policy does not permit the project to call it. Name another one."""
    STEP = "step"
    """Only the last step of a delivery may change task state or send a workflow message.

    Move the write to the last step.
    """
    FENCE = "fence"
    """A newer delivery of the message is under way. Stop; the newer delivery continues."""
    ENDED = "ended"
    """The task has ended. Stop; only records and messages allowed after the end are accepted."""

    # Content
    SENSITIVE = "sensitive"
    """The text contains a secret or a payment card. Remove it, or have its fingerprint released."""
    UNCITED = "uncited"
    """A citation names an item that the delivery has not read at that version. Cite what was read."""
    EMPTY = "empty"
    """The document has no text. Send a document with text."""
    BINARY = "binary"
    """The document is binary and of no supported format. Send text, HTML or PDF."""
    ENCODING = "encoding"
    """The document is not in the encoding that it declares. Convert it to UTF-8."""
    UNREADABLE = "unreadable"
    """The document is damaged, encrypted, or its reader exceeded its limits. Send it in another form."""
    OLD_WRITER = "old_writer"
    """The writer's schema version is lower than that of the stored record. Upgrade the writer."""
    BAD_VERSION = "bad_version"
    """A record has a schema version below 1. Correct its writer."""

    # Queries
    EMPTY_QUERY = "empty_query"
    """The query text has no word to search for. Send a text with words."""
    QUERY_TOO_LONG = "query_too_long"
    """The query text exceeds its limit. Shorten the text."""
    CYPHER = "cypher"
    """The Cypher query or a parameter is not valid, or is not read-only. Correct the query."""
    VECTOR = "vector"
    """The vector has the wrong dimension, or values that are not finite. Send a vector of the store's model."""
    TOO_MUCH = "too_much"
    """More records depend on the item than one request may change. Begin with one of those records."""

    # Models and providers
    NO_MODEL = "no_model"
    """No model is configured. Set the variable that the problem names."""
    WEB_UNAVAILABLE = "web_unavailable"
    """No web search is configured. Set `COUNTERPOINT_SEARCH_URL`."""
    KEY_REUSED = "key_reused"
    """The idempotency key of a gateway call was used for another call. Use a key for one call only."""
    UNKNOWN_OUTCOME = "unknown_outcome"
    """The process ended during the provider call, so that its outcome is unknown.

    Decide whether to call again with a new key.
    """
    NOT_KEPT = "not_kept"
    """The outcome of the call is no longer stored. Call again with a new key."""
    EMBEDDING_DIMENSIONS = "embedding_dimensions"
    """The embedding model returns vectors of another dimension than configured.

    Correct `COUNTERPOINT_EMBEDDING_DIMENSIONS`.
    """
    EMBEDDING_INVALID = "embedding_invalid"
    """The embedding model returned no usable vector for a text. Check the model."""
    MODEL_MISSING = "model_missing"
    """The model folder lacks a file. Complete the folder."""
    MODEL_NOT_INSTALLED = "model_not_installed"
    """The package of the built-in embedding model is not installed. Run `make setup`."""
    MODEL_UNREADABLE = "model_unreadable"
    """A file of the model folder cannot be read. Replace the file."""
    MODEL_INPUTS = "model_inputs"
    """The model graph has inputs that the tokenizer does not fill. Use a text embedding model."""
    MODEL_OUTPUTS = "model_outputs"
    """The model graph has no output of shape (1, n) or (1, tokens, n). Use a text embedding model."""
    MODEL_FAILS = "model_fails"
    """The model graph fails on a test text. Replace the model."""
    MODEL_DIFFERS = "model_differs"
    """The content of the model folder is not what it was when its vectors were made.

    Restore the folder, or re-embed.
    """
    MODEL_WEIGHTS_DIFFER = "model_weights_differ"
    """The installed weights do not match their checksum. Install them again with `make setup`."""
    MODEL_BUILD_DIFFERS = "model_build_differs"
    """The ONNX graph built from the weights does not match its checksum.

    Install the locked versions with `make setup`.
    """
    MODEL_CACHE_NOT_WRITABLE = "model_cache_not_writable"
    """The folder for built models cannot be written. Set another folder, or correct its permissions."""

    # Deliveries
    DENIED = "denied"
    """A permission error of the consumer; the problem's field is its code.

    Correct the policy, then retry the dead letter.
    """
    UNEXPECTED = "unexpected"
    """The consumer raised an unexpected exception on every delivery. Report it, then retry the dead letter."""
    MAX_DELIVERIES = "max_deliveries"
    """The bus gave up: no consumer acknowledged the message.

    Find out why the consumer stops, then retry the dead letter.
    """
    DEADLINE = "deadline"
    """The deadline of the task passed before it was done. Submit it again with a later deadline."""

    # Configuration and local engines
    ALREADY_RUNNING = "already_running"
    """Another supervisor runs on the data folder. Stop it with `counterpoint down`, or use another folder."""
    ENGINE_MISSING = "engine_missing"
    """The package of an engine is not installed. Run `make setup`."""
    PORT_TAKEN = "port_taken"
    """Another process listens on the port. Choose another port."""
    DISK_FULL = "disk_full"
    """Too little disk space is left. Free disk space."""
    ENGINE_UNFIT = "engine_unfit"
    """An engine of your own lacks something, or belongs to another installation. Do what the problems say."""
    RELEASE_UNFIT = "release_unfit"
    """The database is of a release that this one cannot follow, or of a later one. Do what the problem says."""
    BACKUP_DAMAGED = "backup_damaged"
    """The file is cut short, was changed, or is not a backup. Use another backup."""
    BACKUP_LATER = "backup_later"
    """The backup was made by a later release. Restore it by that release or a later one."""
    PASSPHRASE = "passphrase"
    """The passphrase is not that of the backup. Give the one with which it was made."""
    NOT_EMPTY = "not_empty"
    """The data folder or database to restore into has content. Name an empty one."""
    RESTORE_UNFINISHED = "restore_unfinished"
    """A restore into the data folder was interrupted. Run it again, or delete the folder."""
    SECRETS_DAMAGED = "secrets_damaged"
    """The file of local credentials cannot be read. Restore it, or start with a new data folder."""
    PUBLISHERS_INVALID = "publishers_invalid"
    """The file of foreign publishers is not valid. Correct the entries that the problems name."""


class Problem(BaseModel):
    """A problem of an input: the dotted path of the field, and the fault."""

    model_config = ConfigDict(frozen=True)

    field: str
    problem: str


class CounterpointError(Exception):
    """Base class of Counterpoint's errors. `refusal` is the id of memory's refusal, if it is one."""

    refusal: str | None = None


class Transient(CounterpointError):
    """A temporary failure: a dependency is unavailable, busy or not ready. Retry later."""

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class Away(Transient):
    """Memory or the bus does not answer. Wait until it does."""


class Permanent(CounterpointError):
    """A retry cannot help: the message is dead-lettered with its problems."""

    def __init__(self, code: str, problems: tuple[Problem, ...] = ()) -> None:
        detail = "; ".join(f"{p.field}: {p.problem}" for p in problems)
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        self.problems = problems


class Denied(CounterpointError):
    """A rule of the policy refuses the request; `needed` is the missing right."""

    def __init__(self, rule: str, needed: str = "") -> None:
        super().__init__(f"{rule}: needs {needed}" if needed else rule)
        self.rule = rule
        self.needed = needed


class Conflict(CounterpointError):
    """A record has another version than the writer expected; versions are None if unknown."""

    def __init__(self, store: str, record_id: str, expected: int | None = None, found: int | None = None) -> None:
        known = f"expected version {expected}, found {found}" if expected is not None else "was changed meanwhile"
        super().__init__(f"{store}/{record_id}: {known}")
        self.store = store
        self.record_id = record_id
        self.expected = expected
        self.found = found

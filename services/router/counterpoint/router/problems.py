"""Problems: every error as RFC 9457 `application/problem+json`."""

import math
from http import HTTPStatus

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from counterpoint.proto.errors import Conflict, CounterpointError, Denied, ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.messages import Shape
from counterpoint.proto.validation import problem_text

log = structlog.get_logger()

MEDIA_TYPE = "application/problem+json"
_STATUS: dict[str, int] = {
    ErrorCode.MALFORMED: 400,
    ErrorCode.UNKNOWN_TASK: 404,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.CONFLICT: 409,
    ErrorCode.IDEMPOTENCY_CONFLICT: 409,
    ErrorCode.TOO_LARGE: 413,
    ErrorCode.TOO_MANY_STREAMS: 429,
}
"""Status codes of `Permanent` errors other than 422."""


class ProblemDetails(Shape):
    """An RFC 9457 problem. `code` is stable; `errors` names each invalid field.

    `refusal` is the id of memory's refusal, which `/v1/audit/refusals/{id}` explains.
    """

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str | None = None
    errors: tuple[Problem, ...] = ()
    refusal: str | None = None


def problem_of(error: CounterpointError) -> tuple[ProblemDetails, dict[str, str]]:
    """Return an error as a problem, and its headers."""
    problem, headers = _of(error)
    return problem.model_copy(update={"refusal": error.refusal}), headers


def _of(error: CounterpointError) -> tuple[ProblemDetails, dict[str, str]]:
    match error:
        case Denied(rule=ErrorCode.UNAUTHENTICATED):
            return _problem(401, ErrorCode.UNAUTHENTICATED, f"needs {error.needed}"), {"WWW-Authenticate": "Bearer"}
        case Denied():
            return _problem(403, error.rule, f"needs {error.needed}"), {}
        case Transient():
            after_s = max(1, math.ceil(error.retry_after_s or 1))
            return _problem(503, ErrorCode.UNAVAILABLE, "try again later"), {"Retry-After": str(after_s)}
        case Permanent():
            return _problem(_STATUS.get(error.code, 422), error.code, errors=error.problems), {}
        case Conflict():
            return _problem(409, ErrorCode.CONFLICT, f"{error.store}/{error.record_id} was changed meanwhile"), {}
        case _:
            return _problem(500, ErrorCode.INTERNAL), {}


def answer_with_problems(app: FastAPI) -> None:
    """Answer every error of `app` with a problem."""

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, CounterpointError)
        problem, headers = problem_of(error)
        if problem.status >= 500:
            log.warning("request.failed", code=problem.code, reason=str(error))
        return _response(problem, headers)

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        errors = tuple(Problem(field=str(each["loc"][-1]), problem=problem_text(each)) for each in error.errors())
        return _response(_problem(422, ErrorCode.INVALID, errors=errors), {})

    async def by_status(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
        return _response(_problem(error.status_code, code), dict(error.headers or {}))

    async def unexpected(_: Request, error: Exception) -> Response:
        log.error("request.failed", code=ErrorCode.INTERNAL, exc_info=error)
        return _response(_problem(500, ErrorCode.INTERNAL), {})

    app.add_exception_handler(CounterpointError, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, by_status)
    app.add_exception_handler(Exception, unexpected)


def _problem(status: int, code: str, detail: str | None = None, errors: tuple[Problem, ...] = ()) -> ProblemDetails:
    return ProblemDetails(
        title=HTTPStatus(status).phrase, status=status, code=code, detail=detail or None, errors=errors
    )


def _response(problem: ProblemDetails, headers: dict[str, str]) -> Response:
    return Response(problem.model_dump_json(exclude_none=True), problem.status, headers, MEDIA_TYPE)

"""Signing in with a browser: a token becomes a cookie, and ends as one."""

from typing import Annotated, Self

from fastapi import APIRouter, Depends, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import Field, model_validator

from counterpoint.proto.errors import Denied, ErrorCode
from counterpoint.proto.messages import MESSAGE_LIMIT_BYTES, Shape
from counterpoint.proto.principals import Principal, PrincipalKind, Role
from counterpoint.router.api.body import parsed, raw_body, reply, validate
from counterpoint.router.api.context import Context, RouterResources
from counterpoint.router.api.delegations import delegators
from counterpoint.router.api.openapi import request_body
from counterpoint.router.console.sign_in_codes import VALID_S
from counterpoint.router.cookies import delete_cookie, require_own_origin, set_cookie

router = APIRouter(prefix="/v1", tags=["console"])

_NO_STORE = {"Cache-Control": "no-store"}
Secret = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[\x21-\x7e]+$")]


class CallerIdentity(Shape):
    """The principal of a request. `projects` are names, or `*` for all.

    `deputy_of` is the person in whose place it decides approvals in the project of the request.
    """

    name: str
    kind: PrincipalKind
    projects: tuple[str, ...]
    roles: tuple[Role, ...]
    deputy_of: str | None = None


class SignIn(Shape):
    """The token of a principal, or a code that was made for it."""

    token: Secret | None = None
    code: Secret | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.token is None) == (self.code is None):
            raise ValueError("token or code must be given")
        return self


class SignInCode(Shape):
    """A code that signs a browser in once: `/#code=CODE`, within `valid_s` seconds."""

    code: str
    valid_s: int


@router.get("/whoami", responses={200: {"model": CallerIdentity}}, response_model=None)
async def whoami(context: Context) -> Response:
    """Return the principal of the token, and whose deputy it is in the project."""
    return _caller(context.principal, next(iter(await delegators(context)), None))


@router.post(
    "/sign-in", responses={200: {"model": CallerIdentity}}, response_model=None, openapi_extra=request_body(SignIn)
)
async def sign_in(request: Request) -> Response:
    """Keep a token in a cookie of the browser (HttpOnly, SameSite=Strict). Only a page of this server may ask.

    Each request with the cookie checks the token again, so the cookie of a revoked token has no right.
    """
    require_own_origin(request)
    resources: RouterResources = request.app.state.resources
    given = validate(SignIn, parsed(await raw_body(request, MESSAGE_LIMIT_BYTES)))
    token = given.token if given.code is None else resources.sign_in_codes.redeem(given.code)
    response = _caller(await resources.authenticator.authenticate(token))
    set_cookie(request, response, token or "")
    return response


@router.post("/sign-in-codes", status_code=201, responses={201: {"model": SignInCode}}, response_model=None)
async def create_code(
    context: Context, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]
) -> Response:
    """Make a code that signs a browser in as the caller, once. A browser with a cookie cannot make one."""
    if credentials is None:
        raise Denied(ErrorCode.UNAUTHENTICATED, "a bearer token")
    code = context.resources.sign_in_codes.create(credentials.credentials)
    return reply(SignInCode(code=code, valid_s=int(VALID_S)), 201, _NO_STORE)


@router.post("/sign-out", status_code=204, response_model=None)
async def sign_out(request: Request) -> Response:
    """Remove the cookie from the browser. The token itself stays valid until it is revoked."""
    require_own_origin(request)
    response = Response(status_code=204, headers=_NO_STORE)
    delete_cookie(request, response)
    return response


def _caller(principal: Principal, deputy_of: str | None = None) -> Response:
    identity = CallerIdentity.model_validate(principal.model_dump() | {"deputy_of": deputy_of})
    return reply(identity, headers=_NO_STORE)

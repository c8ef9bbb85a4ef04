"""Signing in with a browser: a token becomes a cookie, and ends as one."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Field

from counterpoint.proto.messages import MESSAGE_LIMIT_BYTES, Shape
from counterpoint.proto.principals import Principal, PrincipalKind, Role
from counterpoint.router.api.body import parsed, raw_body, reply, validate
from counterpoint.router.api.context import Context, RouterResources
from counterpoint.router.api.openapi import request_body
from counterpoint.router.cookies import delete_cookie, require_own_origin, set_cookie

router = APIRouter(prefix="/v1", tags=["console"])

_NO_STORE = {"Cache-Control": "no-store"}
Token = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[\x21-\x7e]+$")]


class CallerIdentity(Shape):
    """The principal of a request. `projects` are names, or `*` for all."""

    name: str
    kind: PrincipalKind
    projects: tuple[str, ...]
    roles: tuple[Role, ...]


class SignIn(Shape):
    """The token of a principal."""

    token: Token


@router.get("/whoami", responses={200: {"model": CallerIdentity}}, response_model=None)
async def whoami(context: Context) -> Response:
    """Return the principal of the token."""
    return _caller(context.principal)


@router.post(
    "/sign-in", responses={200: {"model": CallerIdentity}}, response_model=None, openapi_extra=request_body(SignIn)
)
async def sign_in(request: Request) -> Response:
    """Keep a token in a cookie of the browser (HttpOnly, SameSite=Strict). Only a page of this server may ask.

    Each request with the cookie checks the token again, so the cookie of a revoked token has no right.
    """
    require_own_origin(request)
    resources: RouterResources = request.app.state.resources
    token = validate(SignIn, parsed(await raw_body(request, MESSAGE_LIMIT_BYTES))).token
    response = _caller(await resources.authenticator.authenticate(token))
    set_cookie(request, response, token)
    return response


@router.post("/sign-out", status_code=204, response_model=None)
async def sign_out(request: Request) -> Response:
    """Remove the cookie from the browser. The token itself stays valid until it is revoked."""
    require_own_origin(request)
    response = Response(status_code=204, headers=_NO_STORE)
    delete_cookie(request, response)
    return response


def _caller(principal: Principal) -> Response:
    return reply(CallerIdentity.model_validate(principal.model_dump()), headers=_NO_STORE)

"""The console over HTTP: its files and their headers, signing in with a cookie, and where the cookie is accepted."""

import gzip
import re
from typing import Any

import httpx
import pytest
from ui.http_front import RunningFront

from counterpoint.router.console.assets import FOLDER, paths
from counterpoint.router.console.sign_in_codes import VALID_S, SignInCodes

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
OWN = {"Sec-Fetch-Site": "same-origin"}
FIRST_LOAD_BYTES = 250 * 1024
UNSAFE = re.compile(
    r"\b(innerHTML|outerHTML|insertAdjacentHTML|setHTML\w*|document\.write\w*|eval|new Function|DOMParser|"
    r"createContextualFragment)\b"
)
OWN_SCRIPTS = [path for path in FOLDER.rglob("*.js") if path.parent.name != "vendor"]


@pytest.fixture
async def browser(front: RunningFront) -> Any:
    """A client without a token of its own."""
    async with httpx.AsyncClient(base_url=front.url, trust_env=False) as client:
        yield client


async def signed_in(front: RunningFront, browser: httpx.AsyncClient, name: str = "ann", *roles: str) -> httpx.Response:
    token = front.house.token_of(name, *roles)
    return await browser.post("/v1/sign-in", json={"token": token}, headers=OWN)


async def test_the_page_and_its_files_are_served_with_a_strict_policy(browser: httpx.AsyncClient) -> None:
    for path in ("/", "/console/app.js", "/console/app.css", "/console/icon.svg"):
        response = await browser.get(path)
        assert response.status_code == 200
        assert response.headers["content-security-policy"] == POLICY
        assert response.headers.get_list("x-content-type-options") == ["nosniff"]
        assert response.headers["referrer-policy"] == "no-referrer"
        again = await browser.get(path, headers={"If-None-Match": response.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert (await browser.head(path)).headers["etag"] == response.headers["etag"]
    assert (await browser.get("/")).headers["content-type"].startswith("text/html")
    assert (await browser.get("/console/app.js")).headers["content-type"].startswith("text/javascript")


async def test_files_are_compressed_for_those_who_accept_it(browser: httpx.AsyncClient) -> None:
    plain = await browser.get("/console/app.js", headers={"Accept-Encoding": "identity"})
    compressed = await browser.get("/console/app.js", headers={"Accept-Encoding": "br, gzip"})
    assert "content-encoding" not in plain.headers
    assert compressed.headers["content-encoding"] == "gzip"
    assert plain.content == compressed.content == (FOLDER / "app.js").read_bytes()


@pytest.mark.parametrize(
    "path",
    [
        "nothing.js",
        "../assets.py",
        "%2e%2e/assets.py",
        "..%2fassets.py",
        "/etc/passwd",
        "pages",
        "vendor/README.md",
        "",
    ],
)
async def test_no_other_file_is_served(browser: httpx.AsyncClient, path: str) -> None:
    assert (await browser.get(f"/console/{path}")).status_code == 404


def test_the_first_load_is_small() -> None:
    index = (FOLDER / "index.html").read_text()
    names = {"index.html", "pages/now.js", *re.findall(r"/console/([\w./]+)", index)}
    assert names <= paths().keys()
    assert not any("vendor" in name for name in names)
    assert sum(len(gzip.compress(paths()[name].read_bytes())) for name in names) < FIRST_LOAD_BYTES


def test_every_module_is_preloaded_that_the_start_imports() -> None:
    preloaded = set(re.findall(r"/console/([\w.]+\.js)", (FOLDER / "index.html").read_text()))
    needed, left = set[str](), ["app.js"]
    while left:
        if (name := left.pop()) not in needed:
            needed.add(name)
            left += re.findall(r'^(?:import|export)[^;]*?from "\./([\w.]+)"', (FOLDER / name).read_text(), re.MULTILINE)
    assert preloaded == needed


@pytest.mark.parametrize("path", OWN_SCRIPTS, ids=lambda path: path.name)
def test_no_script_makes_markup_of_text(path: Any) -> None:
    text = path.read_text()
    assert not UNSAFE.findall(text)
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text), "the console needs no other host"


async def test_a_token_becomes_a_cookie_that_scripts_cannot_read(
    front: RunningFront, browser: httpx.AsyncClient
) -> None:
    response = await signed_in(front, browser, "ann", "read", "approve")
    assert response.json() == {
        "name": "ann",
        "kind": "person",
        "projects": response.json()["projects"],
        "roles": ["read", "approve"],
    }
    cookie = response.headers["set-cookie"].lower()
    port = httpx.URL(front.url).port
    assert cookie.startswith(f"counterpoint_{port}=")
    assert {"httponly", "samesite=strict", "path=/v1"} <= set(cookie.split("; "))
    assert "secure" not in cookie.split("; ")
    assert response.headers["cache-control"] == "no-store"
    assert (await browser.get("/v1/whoami", headers=OWN)).json()["name"] == "ann"
    assert (await browser.get("/v1/tasks", headers=OWN)).status_code == 200


async def test_the_cookie_is_secure_where_the_page_is(front: RunningFront, browser: httpx.AsyncClient) -> None:
    headers = {**OWN, "Origin": "https://counterpoint.example"}
    response = await browser.post("/v1/sign-in", json={"token": front.house.token_of("ann")}, headers=headers)
    assert "secure" in response.headers["set-cookie"].lower().split("; ")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"token": "nobody"}, 401),
        ({"code": "nobody"}, 401),
        ({}, 422),
        ({"token": "x", "code": "x"}, 422),
        ({"token": ""}, 422),
        ({"token": "a b"}, 422),
        ({"token": "x" * 501}, 422),
    ],
)
async def test_a_wrong_token_is_no_cookie(
    front: RunningFront, browser: httpx.AsyncClient, body: dict[str, str], status: int
) -> None:
    response = await browser.post("/v1/sign-in", json=body, headers=OWN)
    assert response.status_code == status
    assert "set-cookie" not in response.headers
    if status == 422:
        assert "token" in response.text


async def test_a_code_signs_a_browser_in_once(front: RunningFront, browser: httpx.AsyncClient) -> None:
    made = await front.me.post("/v1/sign-in-codes")
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    body = {"code": made.json()["code"]}
    assert (await browser.post("/v1/sign-in", json=body, headers=OWN)).json()["name"] == "me"
    assert (await browser.get("/v1/whoami", headers=OWN)).json()["name"] == "me"
    again = await browser.post("/v1/sign-in", json=body, headers=OWN)
    assert (again.status_code, "set-cookie" in again.headers) == (401, False)


async def test_a_code_is_made_with_a_token_alone(front: RunningFront, browser: httpx.AsyncClient) -> None:
    assert (await browser.post("/v1/sign-in-codes")).status_code == 401
    await signed_in(front, browser)
    assert (await browser.post("/v1/sign-in-codes", headers=OWN)).status_code == 401


def test_a_code_expires_and_is_not_kept() -> None:
    now_s = 0.0
    codes = SignInCodes(lambda: now_s)
    code = codes.create("secret")
    assert (code in repr(vars(codes)), codes.redeem("x")) == (False, None)
    now_s = VALID_S - 1
    assert codes.redeem(code) == "secret"
    assert codes.redeem(code) is None
    late = codes.create("secret")
    now_s = 2 * VALID_S
    assert codes.redeem(late) is None


async def test_signing_out_removes_the_cookie(front: RunningFront, browser: httpx.AsyncClient) -> None:
    await signed_in(front, browser)
    assert (await browser.post("/v1/sign-out", headers=OWN)).status_code == 204
    assert not browser.cookies
    assert (await browser.get("/v1/whoami", headers=OWN)).status_code == 401


CROSS: list[dict[str, str]] = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
]


@pytest.mark.parametrize("headers", [*CROSS, {"Sec-Fetch-Site": "none"}, {}], ids=str)
async def test_the_cookie_changes_nothing_for_another_origin(
    front: RunningFront, browser: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    await signed_in(front, browser)
    body = {"kind": "question", "description": "Why?"}
    for path in ("/v1/tasks", "/v1/sign-in", "/v1/sign-out"):
        response = await browser.post(path, json=body, headers=headers)
        assert (response.status_code, response.json()["code"]) == (403, "origin")
        assert "set-cookie" not in response.headers
    assert not front.house.log


@pytest.mark.parametrize("headers", CROSS, ids=str)
async def test_the_cookie_reads_nothing_for_another_origin(
    front: RunningFront, browser: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    await signed_in(front, browser)
    assert (await browser.get("/v1/tasks", headers=headers)).status_code == 403


async def test_the_own_origin_is_known_by_its_host_without_fetch_metadata(
    front: RunningFront, browser: httpx.AsyncClient
) -> None:
    await signed_in(front, browser)
    body = {"kind": "question", "description": "Why?"}
    assert (await browser.post("/v1/tasks", json=body, headers={"Origin": front.url})).status_code == 202


async def test_a_bearer_token_needs_no_origin_and_wins_over_the_cookie(
    front: RunningFront, browser: httpx.AsyncClient
) -> None:
    await signed_in(front, browser)
    headers = {"Authorization": f"Bearer {front.house.token_of('bob')}", "Sec-Fetch-Site": "cross-site"}
    assert (await browser.get("/v1/whoami", headers=headers)).json()["name"] == "bob"


async def test_the_cookie_has_the_rights_of_its_principal_alone(
    front: RunningFront, browser: httpx.AsyncClient
) -> None:
    await signed_in(front, browser, "reader", "read")
    response = await browser.post("/v1/tasks", json={"kind": "question", "description": "Why?"}, headers=OWN)
    assert (response.status_code, response.json()["code"]) == (403, "role")


async def test_the_cookie_of_a_revoked_token_has_no_right(front: RunningFront, browser: httpx.AsyncClient) -> None:
    await signed_in(front, browser)
    assert (await front.me.delete("/v1/principals/ann")).status_code == 200
    assert (await browser.get("/v1/tasks", headers=OWN)).status_code == 401


async def test_the_cookie_is_sent_to_the_api_alone(front: RunningFront, browser: httpx.AsyncClient) -> None:
    await signed_in(front, browser)
    assert "cookie" not in (await browser.get("/")).request.headers
    assert "cookie" not in (await browser.post("/mcp", json={})).request.headers

"""`/readyz` says what a service waits for, and leaves out what a prober does not wait for."""

import httpx
import pytest

from counterpoint.bus.health import health_app


@pytest.mark.parametrize(
    ("query", "status", "waiting"),
    [
        ("", 503, ["bus", "lease"]),
        ("?exclude=lease", 503, ["bus"]),
        ("?exclude=lease&exclude=bus", 200, []),
        ("?exclude=other", 503, ["bus", "lease"]),
    ],
)
async def test_a_reason_may_be_excluded(query: str, status: int, waiting: list[str]) -> None:
    app = health_app(lambda: ("bus", "lease"), {})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as http:
        answer = await http.get(f"/readyz{query}")
    assert answer.status_code == status
    assert answer.json() == {"ready": status == 200, "waiting_for": waiting}

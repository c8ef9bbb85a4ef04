"""The OpenAPI document is committed, complete, and says what the API does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from counterpoint.proto import schemas
from counterpoint.proto.messages import Message
from counterpoint.router.api import generate
from counterpoint.router.api.application import HttpApi

DOCUMENT = HttpApi().openapi()
CONTRACT = {
    "/hooks/{source}": {"post"},
    "/v1/tasks": {"get", "post"},
    "/v1/tasks/{task_id}": {"get"},
    "/v1/tasks/{task_id}/line": {"get"},
    "/v1/tasks/{task_id}/events": {"get"},
    "/v1/tasks/{task_id}/cancel": {"post"},
    "/v1/tasks/{task_id}/override": {"post"},
    "/v1/tasks/{task_id}/outcome": {"post"},
    "/v1/links": {"get", "post", "delete"},
    "/v1/recoveries": {"get"},
    "/v1/incident-settings": {"get", "put", "delete"},
    "/v1/shadow": {"get"},
    "/v1/approvals": {"get"},
    "/v1/approvals/{approval_id}": {"get", "post"},
    "/v1/costs": {"get"},
    "/v1/sessions/{session_id}": {"get"},
    "/v1/limits": {"get", "put", "delete"},
    "/v1/limits/organisation": {"put", "delete"},
    "/v1/delegations": {"get", "put", "delete"},
    "/v1/escalations": {"get"},
    "/v1/documents": {"get", "post"},
    "/v1/passages": {"get"},
    "/v1/ingests/{job_id}": {"get"},
    "/v1/search": {"post"},
    "/v1/attempts": {"get", "post"},
    "/v1/lessons": {"post"},
    "/v1/providers": {"get", "post"},
    "/v1/decisions/stream": {"get"},
    "/v1/dead-letters": {"get"},
    "/v1/dead-letters/{letter_id}": {"get"},
    "/v1/dead-letters/{letter_id}/retry": {"post"},
    "/v1/jobs": {"get"},
    "/v1/datasets": {"get"},
    "/v1/datasets/{namespace}/{name}/lineage": {"get"},
    "/v1/datasets/{namespace}/{name}/blast-radius": {"get"},
    "/v1/dead-letters/{letter_id}/retry-alike": {"post"},
    "/v1/health": {"get"},
    "/v1/jobs/{namespace}/{name}/lineage": {"get"},
    "/v1/jobs/{namespace}/{name}/blast-radius": {"get"},
    "/v1/releases": {"get", "post"},
    "/v1/releases/{fingerprint}": {"delete"},
    "/v1/revocations": {"get", "post"},
    "/v1/quarantines": {"get", "post"},
    "/v1/entities": {"get"},
    "/v1/entities/known": {"get"},
    "/v1/entities/{entity_id}/neighbours": {"get"},
    "/v1/cypher": {"post"},
    "/v1/rebuild/{tier}": {"get", "post"},
    "/v1/reembed": {"get", "post"},
    "/v1/erasures": {"get", "post"},
    "/v1/blast-radius": {"get"},
    "/v1/tasks/{task_id}/replay": {"post"},
    "/v1/tasks/{task_id}/replay/calls": {"post"},
    "/v1/tasks/{task_id}/replay/queries": {"post"},
    "/v1/tasks/{task_id}/model-token": {"post"},
    "/v1/tasks/{task_id}/draft": {"get"},
    "/v1/audit/verify": {"get", "post"},
    "/v1/audit/proofs/{task_id}": {"get"},
    "/v1/audit/leaves": {"get"},
    "/v1/audit/checkpoints": {"get"},
    "/v1/audit/refusals": {"get"},
    "/v1/audit/refusals/{refusal_id}": {"get"},
    "/v1/principals": {"get", "post"},
    "/v1/principals/{name}": {"delete"},
    "/v1/schemas/{message_type}": {"get"},
    "/v1/whoami": {"get"},
    "/v1/incidents": {"get"},
    "/v1/decisions": {"get"},
    "/v1/tasks/{task_id}/card": {"get"},
    "/v1/sign-in": {"post"},
    "/v1/sign-out": {"post"},
    "/v1/sign-in-codes": {"post"},
}
WITHOUT_TOKEN = {"/v1/schemas/{message_type}", "/v1/sign-in", "/v1/sign-out"}


def test_the_committed_document_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0, capsys.readouterr().out


def test_check_writes_nothing_and_tells_of_a_difference(tmp_path: Path) -> None:
    file = tmp_path / "openapi.json"
    assert generate.main(["--check", str(file)]) == 1
    assert not file.exists()
    assert generate.main([str(file)]) == 0
    assert generate.main(["--check", str(file)]) == 0
    file.write_text("{}", encoding="utf-8")
    assert generate.main(["--check", str(file)]) == 1


def test_every_path_of_the_contract_is_there_and_no_other() -> None:
    assert {path: set(operations) for path, operations in DOCUMENT["paths"].items()} == CONTRACT


def test_every_reference_leads_somewhere_and_every_schema_is_used() -> None:
    references = {each.removeprefix("#/components/schemas/") for each in _references(DOCUMENT)}
    assert references == set(DOCUMENT["components"]["schemas"])


def test_every_operation_lists_its_problems_and_its_roles() -> None:
    for path, operations in DOCUMENT["paths"].items():
        for operation in operations.values():
            assert "application/problem+json" in operation["responses"]["default"]["content"]
            assert operation["description"]
            assert bool(operation.get("security")) is (path not in WITHOUT_TOKEN)


async def test_the_document_and_the_schemas_need_no_token() -> None:
    transport = httpx.ASGITransport(app=HttpApi())
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as nobody:
        assert (await nobody.get("/openapi.json")).json() == DOCUMENT
        for message_type in Message.register:
            response = await nobody.get(f"/v1/schemas/{message_type}")
            assert response.json() == schemas.of(message_type)
        assert (await nobody.get("/v1/schemas/nothing")).status_code == 404


def _references(node: Any) -> Iterator[str]:
    match node:
        case {"$ref": str(reference), **more}:
            yield reference
            yield from _references(more)
        case dict():
            for value in node.values():
                yield from _references(value)
        case list():
            for value in node:
                yield from _references(value)

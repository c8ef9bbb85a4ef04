"""A publisher has the rights of its own projects, and nobody's go as far as the project that all may read."""

from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
from bus.lone_bus import PASSWORDS

from counterpoint.bus.codec import decode
from counterpoint.bus.permissions import check_publishers, nats_config
from counterpoint.bus.provision import provision
from counterpoint.local.nats import NatsServer, run_nats
from counterpoint.proto import subjects
from counterpoint.proto.errors import Permanent
from counterpoint.proto.messages import utc_now

MINE, OTHERS = "alpha", "beta"
LOGINS = {**PASSWORDS, "airflow": "airflow-of-a-test"}
KINDS = ("task", "outcome", "lineage")


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsServer]:
    """A publisher of one project beside that of all, as a laptop has it."""
    config = nats_config(LOGINS, publishers={"airflow": (MINE,)})
    async with run_nats(tmp_path_factory.mktemp("publishers"), config) as server:
        await provision(server.url, "provisioner", LOGINS["provisioner"])
        yield server


async def _taken(server: NatsServer, user: str, projects: tuple[str, ...], own: str) -> set[str]:
    """The projects of which the intake holds something after this user has published to them all, `own` last."""
    inbox = subjects.inbox_prefix(user).encode()
    async with await nats.connect(
        server.url, user=user, password=LOGINS[user], inbox_prefix=inbox, error_cb=_refused
    ) as client:
        for project in (*projects, own):
            for kind in KINDS:
                await client.publish(f"intake.{project}.{kind}", b"{}")
        await client.jetstream().publish(f"intake.{own}.{KINDS[-1]}", b"{}")
    inbox = subjects.inbox_prefix("provisioner").encode()
    async with await nats.connect(
        server.url, user="provisioner", password=LOGINS["provisioner"], inbox_prefix=inbox
    ) as client:
        info = await client.jetstream().stream_info(subjects.INTAKE, subjects_filter=">")
    taken = info.state.subjects or {}
    places = {subjects.project_of(subject) for subject in taken}
    assert len(taken) == len(places) * len(KINDS)
    return places


async def _refused(error: Exception) -> None:
    assert "permissions violation" in str(error).lower()


async def test_publishers_reach_their_own_projects_and_never_the_shared_one(server: NatsServer) -> None:
    everywhere = (MINE, OTHERS, subjects.SHARED_PROJECT)
    assert await _taken(server, "airflow", everywhere, MINE) == {MINE}
    assert await _taken(server, "publisher", everywhere, MINE) == {MINE, OTHERS}


async def test_the_publisher_of_all_may_be_one_of_some(tmp_path: Path) -> None:
    config = nats_config(LOGINS, publishers={"airflow": (MINE,), "publisher": (OTHERS,)})
    async with run_nats(tmp_path, config) as server:
        await provision(server.url, "provisioner", LOGINS["provisioner"])
        assert await _taken(server, "publisher", (MINE, OTHERS), OTHERS) == {OTHERS}


@pytest.mark.parametrize(
    ("name", "projects"),
    [
        ("memory", ("orders",)),
        ("provisioner", ("orders",)),
        ("observer", ("orders",)),
        ("Airflow", ("orders",)),
        ("a.b", ("orders",)),
        ("airflow", ("shared",)),
        ("airflow", (">",)),
        ("airflow", ("orders.task", "orders")),
        ("airflow", ()),
    ],
)
def test_other_names_and_projects_are_refused(name: str, projects: tuple[str, ...]) -> None:
    with pytest.raises(Permanent, match=f"publishers_invalid: {name}: "):
        check_publishers({name: projects})


def test_an_intake_message_for_the_shared_project_is_refused() -> None:
    place = f"intake.{subjects.SHARED_PROJECT}.task"
    with pytest.raises(Permanent, match="invalid: project: "):
        decode(place, {}, b"{}", stream=subjects.INTAKE, sequence=1, delivered=1, stored_at=utc_now())

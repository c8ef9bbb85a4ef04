"""Knowledge to ask about: documents about services with made-up names, and the question that each of them answers."""

import random

import httpx

_SYLLABLES = ("ba", "do", "fi", "gu", "ka", "lo", "mi", "nu", "pe", "ra", "so", "ti", "vu", "we", "zo")


def names(count: int) -> list[str]:
    """That many different names of services."""
    choose = random.Random(3)
    made: dict[str, None] = {}
    while len(made) < count:
        made["".join(choose.choices(_SYLLABLES, k=4))] = None
    return list(made)


def question(service: str) -> str:
    """What the documents answer about a service."""
    return f"Which port does the {service} service listen on?"


def knowledge(services: list[str]) -> list[dict[str, str]]:
    """Documents that say of each service what there is to ask; one chunk a service."""
    choose = random.Random(4)
    sections = [
        f"## The {name} service\n\nThe {name} service listens on port {choose.randint(1024, 65000)} and is owned by "
        f"team {choose.choice(services)}. Restart it with `systemctl restart {name}` and wait "
        f"{choose.randint(2, 90)} seconds until {choose.choice(services)} has seen it again.\n"
        for name in services
    ]
    return [
        {"source": f"services/{n // 50}.md", "text": f"# Services {n // 50}\n\n" + "\n".join(sections[n : n + 50])}
        for n in range(0, len(sections), 50)
    ]


async def ingest(http: httpx.AsyncClient, project: str, services: list[str]) -> int:
    """Hand in the documents about these services; how many chunks they became. Raises `httpx.HTTPStatusError`."""
    documents = knowledge(services)
    made = 0
    for n in range(0, len(documents), 5):
        body = {"documents": documents[n : n + 5]}
        answer = await http.post("/v1/documents", params={"project": project}, json=body)
        answer.raise_for_status()
        made += sum(document["chunks"] for document in answer.json()["documents"])
    return made

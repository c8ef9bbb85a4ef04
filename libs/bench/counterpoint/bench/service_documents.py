"""Documents about services with made-up names, and the question that each section answers."""

import random

import httpx

_SYLLABLES = ("ba", "do", "fi", "gu", "ka", "lo", "mi", "nu", "pe", "ra", "so", "ti", "vu", "we", "zo")
_SECTIONS_PER_DOCUMENT = 50
_DOCUMENTS_PER_REQUEST = 5


def service_names(count: int) -> list[str]:
    """Return `count` different names."""
    draw = random.Random(3)
    names: dict[str, None] = {}
    while len(names) < count:
        names["".join(draw.choices(_SYLLABLES, k=4))] = None
    return list(names)


def port_question(service: str) -> str:
    """Return the question that the section about a service answers."""
    return f"Which port does the {service} service listen on?"


def service_documents(services: list[str]) -> list[dict[str, str]]:
    """Return documents with one section, and so one chunk, per service."""
    draw = random.Random(4)
    sections = [
        f"## The {name} service\n\nThe {name} service listens on port {draw.randint(1024, 65000)} and is owned by "
        f"team {draw.choice(services)}. Restart it with `systemctl restart {name}` and wait "
        f"{draw.randint(2, 90)} seconds until {draw.choice(services)} has seen it again.\n"
        for name in services
    ]
    starts = range(0, len(sections), _SECTIONS_PER_DOCUMENT)
    return [
        {
            "source": f"services/{number}.md",
            "text": f"# Services {number}\n\n" + "\n".join(sections[start : start + _SECTIONS_PER_DOCUMENT]),
        }
        for number, start in enumerate(starts)
    ]


async def ingest_services(http: httpx.AsyncClient, project: str, services: list[str]) -> int:
    """Ingest the documents about services; return the number of chunks. Raises `httpx.HTTPStatusError`."""
    documents = service_documents(services)
    chunks = 0
    for start in range(0, len(documents), _DOCUMENTS_PER_REQUEST):
        body = {"documents": documents[start : start + _DOCUMENTS_PER_REQUEST]}
        response = await http.post("/v1/documents", params={"project": project}, json=body)
        response.raise_for_status()
        chunks += sum(document["chunks"] for document in response.json()["documents"])
    return chunks

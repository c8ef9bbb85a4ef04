"""Pages: whatever answers at an address, there is a document or a reason, in bounded time and memory."""

import gzip
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from counterpoint.cli.ingest import pages
from counterpoint.cli.ingest.files import FILE_LIMIT_BYTES, SkippedPath, SourceFile
from counterpoint.cli.ingest.url_list import without_credentials

Answer = Callable[[Callable[[bytes], object], threading.Event], object]
"""Answers a request by writing; the event is set when the test is over."""


@contextmanager
def answering(answers: dict[str, bytes | Answer]) -> Iterator[int]:
    """A server that says what it is told to by path, as it stands, and ends each connection then: its port."""
    over = threading.Event()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            path = self.rfile.readline().split(b" ")[1].decode()
            while self.rfile.readline().strip():
                pass
            answer = answers.get(path, b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            try:
                answer(self.request.sendall, over) if callable(answer) else self.request.sendall(answer)
            except OSError:
                over.set()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            over.set()
            server.shutdown()
            thread.join()


def to(address: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nlocation: {address}\r\ncontent-length: 0\r\n\r\n".encode()


def page(body: bytes, *headers: str, bytes_said: int | None = None) -> bytes:
    length = len(body) if bytes_said is None else bytes_said
    return "\r\n".join(("HTTP/1.1 200 OK", f"content-length: {length}", *headers, "", "")).encode() + body


def reason(answers: dict[str, bytes | Answer], address: str = "http://127.0.0.1:{port}/") -> str:
    """Why there is no document."""
    with answering(answers) as port:
        found = pages.fetch(address.format(port=port))
    assert isinstance(found, SkippedPath)
    assert found.failed
    return found.reason.replace(str(port), "PORT")


def endless(head: bytes, again: bytes) -> Answer:
    def answer(write: Callable[[bytes], object], over: threading.Event) -> None:
        write(head)
        while not over.is_set():
            write(again)

    return answer


def slowly(head: bytes, again: bytes) -> Answer:
    """More comes every now and then, for ever."""

    def answer(write: Callable[[bytes], object], over: threading.Event) -> None:
        write(head)
        while not over.wait(0.02):
            write(again)

    return answer


def test_a_page_is_fetched_where_it_leads_to_under_the_name_that_was_asked_for() -> None:
    with answering({"/": to("/a"), "/a": to("?b"), "/a?b": page(b"# Hi", "content-type: text/markdown")}) as port:
        found = pages.fetch(f"http://name:word@127.0.0.1:{port}/#part")
        assert found == SourceFile(found.path, f"http://127.0.0.1:{port}/", "# Hi", type="markdown")


def test_a_redirect_loop_is_left() -> None:
    assert reason({"/": to("/")}) == "redirects more than 5 times"


@pytest.mark.parametrize("address", ["file:///etc/hostname", "ftp://127.0.0.1/x", "http://:80/x"])
def test_a_redirect_to_another_scheme_is_left(address: str) -> None:
    assert reason({"/": to(address)}) == f"redirects to {address}, which is not an HTTP URL"


@pytest.mark.parametrize("address", ["http://[::1", "http://[x]/", "http://127.0.0.1:port/"])
def test_an_invalid_address_costs_one_page(address: str) -> None:
    assert reason({"/": to(address)})
    assert reason({}, address.replace("{port}", ""))


def test_a_public_page_does_not_lead_to_a_private_address(monkeypatch: pytest.MonkeyPatch) -> None:
    private = "http://127.0.0.1:{port}/secret"
    with answering({"/secret": page(b"secret")}) as port:
        answers: dict[str, bytes | Answer] = {"/": to(private.format(port=port))}
        with answering(answers) as first:
            inside = pages.fetch(f"http://localhost:{first}/")

            hosts = iter((True, False))
            monkeypatch.setattr(pages, "is_public", lambda _: next(hosts))
            outside = pages.fetch(f"http://localhost:{first}/")
    assert isinstance(inside, SourceFile)
    assert isinstance(outside, SkippedPath)
    assert outside.reason == f"redirects from a public address to a private one, {private.format(port=port)}"


@pytest.mark.parametrize(
    ("host", "public"),
    [
        ("8.8.8.8", True), ("2606:4700::1111", True), ("127.0.0.1", False), ("10.1.2.3", False), ("::1", False),
        ("169.254.169.254", False), ("2130706433", False), ("::ffff:127.0.0.1", False), ("0.0.0.0", False),
        ("::127.0.0.1", False), ("64:ff9b::a9fe:a9fe", False), ("2002:7f00:1::1", False), ("168.63.129.16", False),
        ("224.0.0.1", False),
    ],
)  # fmt: skip
async def test_a_public_host_is_one_whose_addresses_all_are(host: str, public: bool) -> None:
    assert pages.is_public(await pages.addresses_of(host)) is public


def test_the_address_that_was_checked_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name means something else when it is looked up again: here nothing."""

    async def once(host: str) -> tuple[str, ...]:
        return ("127.0.0.2", "127.0.0.1") if host == "pages.invalid" else ()

    monkeypatch.setattr(pages, "addresses_of", once)
    monkeypatch.setattr(pages, "is_public", bool)
    monkeypatch.setattr(pages, "getproxies", dict)
    with answering({"/": to("/a"), "/a": page(b"# Hi", "content-type: text/markdown")}) as port:
        found = pages.fetch(f"http://pages.invalid:{port}/")
    assert isinstance(found, SourceFile)
    assert (found.text, found.source) == ("# Hi", f"http://pages.invalid:{port}/")


@pytest.mark.parametrize(
    "answer",
    [
        endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536),
        page(gzip.compress(b"x" * (FILE_LIMIT_BYTES + 1)), "content-encoding: gzip"),
    ],
    ids=["endless", "packed"],
)
def test_a_page_that_is_too_large_is_left(answer: bytes | Answer) -> None:
    assert reason({"/": answer}) == "too large: more than 11 MiB"


@pytest.mark.parametrize("packed", ["zstd", "br", "gzip, gzip"])
def test_an_unsupported_content_encoding_is_left(packed: str) -> None:
    assert reason({"/": page(b"x", f"content-encoding: {packed}")}) == f"has the unsupported content encoding {packed}"


@pytest.mark.parametrize(
    "answer",
    [
        slowly(b"HTTP/1.1 200 OK\r\nx-a: ", b"a"),
        slowly(b"HTTP/1.1 200 OK\r\n\r\n", b"a"),
        slowly(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n", b"a"),
        lambda write, over: over.wait(),
    ],
    ids=["head", "body", "body of a length", "nothing"],
)
def test_a_slow_page_is_left(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "FETCH_LIMIT_S", 0.3)
    assert reason({"/": answer}) == "took longer than 0.3 s"


@pytest.mark.parametrize(
    "answer",
    [
        page(b"half", bytes_said=400),
        page(b"", "content-length: 7"),
        page(b"no gzip", "content-encoding: gzip"),
        page(b"caf\xe9", "content-type: text/plain; charset=nonsense"),
        page(b"caf\xe9", "content-type: text/plain; charset=idna"),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"no HTTP",
        b"",
    ],
)
def test_a_page_that_contradicts_its_headers_is_left(answer: bytes) -> None:
    assert reason({"/": answer})


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://name:w@rd@host/a@b", "https://host/a@b"),
        ("http://host/x?y=a@b", "http://host/x?y=a@b"),
        ("http://name@[::1/x", "http://[::1/x"),
        ("git@host:x", "git@host:x"),
    ],
)
def test_credentials_are_removed_from_an_address(address: str, shown: str) -> None:
    assert without_credentials(address) == shown

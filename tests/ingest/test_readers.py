"""Files become text, or are refused with a reason; PDF and HTML are read by a process of their own."""

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from ingest.pdf_files import assembled, paper, written
from ingest.refused_reading import refused

from counterpoint.memory.ingest.chunk import chunk
from counterpoint.memory.ingest.readers import read
from counterpoint.memory.ingest.readers import reader_process as apart_module
from counterpoint.memory.ingest.readers.html import HTML_LIMIT_CHARS

CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
PAGE = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>"


def kids(kids: bytes, count: int) -> bytes:
    """A node of the tree of pages."""
    return b"<< /Type /Pages /Kids [" + kids + b"] /Count %d >>" % count


def nested_forms(first: int = 5, depth: int = 8) -> bytes:
    """A page whose form draws the next form ten times, and so on; the last one draws itself."""
    drawn = b"/MediaBox [0 0 9 9] /Resources << /XObject << /X 5 0 R >> >> /Contents 4 0 R"
    forms = [
        b"<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Length 60 /Resources << /XObject << /X %d 0 R >> >> >>\n"
        b"stream\n%s\nendstream" % (min(number + 1, first + depth - 1), b"/X Do " * 10)
        for number in range(first, first + depth)
    ]
    page = b"<< /Type /Page /Parent 2 0 R " + drawn + b" >>"
    return written(CATALOG, kids(b"3 0 R", 1), page, b"<< /Length 6 >>\nstream\n/X Do \nendstream", *forms)


BOMBS: dict[str, Callable[[], bytes]] = {
    "two thousand million pages": lambda: written(CATALOG, kids(b"3 0 R", 2_000_000_000), PAGE),
    "pages that contain themselves": lambda: written(CATALOG, kids(b"2 0 R 2 0 R", 1_000_000)),
    "a million brackets": lambda: written(b"<< /Type /Catalog /Pages 2 0 R /X %s >>" % (b"[" * 10**6), PAGE),
    "a deep tree": lambda: written(CATALOG, *(kids(b"%d 0 R" % n, 1) for n in range(3, 50_000)), PAGE),
    "an xref that follows itself": lambda: written(CATALOG, kids(b"3 0 R", 1), PAGE, prev=True),
    "forms in forms": nested_forms,
    "operators without end": lambda: assembled([(b"q " * 5_000_000, True)]),
    "packed twice": lambda: assembled([(zlib.compress(b" " * 700_000_000, 1), True)]).replace(
        b"/Filter /FlateDecode", b"/Filter [/FlateDecode /FlateDecode]"
    ),
}
DATA = Path(__file__).parents[1] / "data"


class TestPdf:
    def test_is_text_by_page_with_its_title(self) -> None:
        found = read("manual.pdf", paper(["Check the seal.\nThen the valve.", "", "Restart (slowly)."], "Pump  manual"))
        assert found.text == "Check the seal.\nThen the valve.\f\fRestart (slowly)."
        assert (found.type, found.title, found.problem) == ("pdf", "Pump manual", "1 of 3 pages have no text: 2")
        assert [
            (piece.text, piece.context) for piece in chunk(found.text, found.type, title=found.title or "").chunks
        ] == [
            ("Check the seal.\nThen the valve.", "Pump manual > page 1"),
            ("Restart (slowly).", "Pump manual > page 3"),
        ]

    def test_is_known_by_its_content_under_any_name(self) -> None:
        assert read("download", paper(["Text."])).type == "pdf"

    def test_that_opens_without_a_password_is_read(self) -> None:
        assert read("a.pdf", (DATA / "owner-only.pdf").read_bytes()).text == "The vault opens at noon."

    def test_that_needs_a_password_is_refused(self) -> None:
        problem = refused("a.pdf", (DATA / "locked.pdf").read_bytes())
        assert problem == ("content", "is an encrypted PDF: it needs a password")

    def test_of_pictures_is_refused(self) -> None:
        assert refused("a.pdf", paper(["", ""])) == (
            "content",
            "is a PDF without a text layer: its pages are images",
        )

    @pytest.mark.parametrize("content", [b"%PDF-1.7\n", b"%PDF-1.4\n" + b"\xff" * 5000, paper(["x"])[:60]])
    def test_that_is_broken_is_refused(self, content: bytes) -> None:
        field, problem = refused("a.pdf", content)
        assert field == "content"
        assert problem.startswith("is not a readable PDF")

    def test_that_is_named_pdf_and_is_none_is_refused_with_the_type(self) -> None:
        assert refused("a", b"plain", "pdf")[1].startswith("is not a readable PDF")

    def test_that_unpacks_to_more_than_the_memory_of_its_reader_costs_one_document(self) -> None:
        packed = zlib.compress(b" " * 700_000_000, 1)
        content = assembled([(packed, False)]).replace(b"/Length ", b"/Filter /FlateDecode /Length ")
        field, problem = refused("bomb.pdf", content)
        assert field == "content"
        assert problem.startswith("is a PDF that ")
        assert read("a.pdf", paper(["Still here."])).text == "Still here."

    def test_that_takes_too_long_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(apart_module, "LIMIT_S", 0.001)
        assert refused("a.pdf", paper(["x"]))[1] == "is a PDF that took longer than 0.001 s to read"

    @pytest.mark.parametrize(
        ("script", "problem"),
        [
            ("os.kill(os.getpid(), signal.SIGSEGV)", "is a PDF that crashed its reader (SIGSEGV)"),
            ("os.abort()", "is a PDF that its reader gave up, probably for want of memory"),
            ("os.kill(os.getpid(), signal.SIGXCPU)", "is a PDF that takes too much time of the processor to read"),
            ("sys.exit(1)", "is a PDF that its reader cannot process"),
            ("print('[' * 900)", "is a PDF that its reader cannot process"),
            ("print('{\"pages\": [1]}')", "is a PDF that its reader cannot process"),
            ("print('{\"refused\": \"' + 'x' * 301 + '\"}')", "is a PDF that its reader cannot process"),
            ("[print('x' * 99) for _ in iter(int, 1)]", "is a PDF whose text has more than 1000 bytes"),
        ],
    )
    def test_whose_reader_was_taken_over_is_refused(
        self, script: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(apart_module, "_CHILD", tmp_path / "worker.py")
        monkeypatch.setattr(apart_module, "RESULT_LIMIT_BYTES", 1000)
        (tmp_path / "worker.py").write_text(f"import os, signal, sys\nsys.stdin.buffer.read()\n{script}\n")
        assert refused("a.pdf", paper(["x"])) == ("content", problem)
        (tmp_path / "worker.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
        assert refused("a.pdf", paper(["x"]) + b" " * 2**20)[1] == "is a PDF that crashed its reader (SIGKILL)"

    def test_its_reader_has_no_environment_and_can_open_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        worker = apart_module._CHILD
        monkeypatch.setenv("COUNTERPOINT_POSTGRES_URL", "secret")
        monkeypatch.setattr(apart_module, "_CHILD", tmp_path / "worker.py")
        (tmp_path / "worker.py").write_text(
            "import json, os, resource, runpy, socket, sys\n"
            "from counterpoint.memory.sandbox import limits\n"
            f"own = runpy.run_path({str(worker)!r})\n"
            "def tried(act, *given):\n"
            "    try: act(*given)\n"
            "    except OSError as error: return type(error).__name__ + str(error.errno)\n"
            "    return 'done'\n"
            "seen = [*os.environ, os.getcwd(), *os.listdir('/proc/self/fd')[3:-1]]\n"
            "own['bounded']()\n"
            "seen += [open('/proc/self/status').read().partition('NoNewPrivs:')[2].split()[0], str(os.nice(0))]\n"
            "limits.close()\n"
            "seen += [str(resource.getrlimit(resource.RLIMIT_NPROC)), str(resource.getrlimit(resource.RLIMIT_FSIZE))]\n"
            "seen += [tried(open, '/etc/passwd'), tried(socket.socket), tried(os.pipe)]\n"
            "print(json.dumps({'pages': seen}))\n"
        )
        assert "COUNTERPOINT" not in (found := read("a.pdf", paper(["x"])).text)
        assert found.split("\f")[-8:] == ["/", "1", "19", "(0, 0)", "(0, 0)", "OSError24", "OSError24", "OSError24"]

    @pytest.mark.parametrize("name", sorted(BOMBS))
    def test_that_is_made_to_hold_its_reader_up_costs_one_document(self, name: str) -> None:
        field, problem = refused("a.pdf", BOMBS[name]())
        assert field == "content"
        assert problem.startswith(("is a PDF that its reader ", "is a PDF without a text layer"))


class TestBytes:
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
    def test_are_text_in_an_encoding_that_is_certain(self, encoding: str) -> None:
        found = read("notes.md", "# Größe – 🦊\n".encode(encoding))
        assert (found.text, found.type) == ("# Größe – 🦊\n", "markdown")

    @pytest.mark.parametrize("content", ["Größe".encode("latin-1"), "Größe".encode("utf-16")[:-1]])
    def test_in_no_encoding_that_is_certain_are_refused(self, content: bytes) -> None:
        field, problem = refused("notes.md", content)
        assert field == "content"
        assert problem.startswith("is n")

    def test_of_an_unknown_kind_are_refused(self) -> None:
        assert refused("image.png", b"\x89PNG\r\n\x1a\n\0\0") == ("content", "is binary, of an unsupported format")

    def test_of_a_page_are_in_the_encoding_that_it_says(self) -> None:
        page = '<html><head><meta charset="iso-8859-1"></head><body><p>Größe</p>'
        assert read("page.html", page.encode("latin-1")).text == "Größe\n"
        assert refused("page.html", page.replace("iso-8859-1", "nonsense").encode("latin-1"))[1] == (
            "is not in its declared encoding, nonsense"
        )


class TestHtml:
    def test_is_markdown_of_the_readable_text(self) -> None:
        page = """<!doctype html><html><head><title>Pump
          manual</title><style>b{}</style></head><body><nav><a href="/">Home</a></nav>
          <h1>Pump_seal</h1><script>alert(1)</script><p>Check <code>seal_pressure</code>, see
          <a href="https://example.com/x">here</a> and <a href="#y">there</a>.</p><h2>Steps</h2>
          <ol><li>Stop</li><li>Wait</li></ol><pre>pump --stop *</pre><img src="data:image/png;base64,AAAA" alt="A pump">
          <table><tr><th>a</th></tr><tr><td>1</td></tr></table><footer>imprint</footer></body></html>"""
        found = read("manual.html", page)
        assert (found.type, found.title) == ("html", "Pump manual")
        for kept in ("# Pump_seal", "`seal_pressure`", "[here](https://example.com/x) and there.", "1. Stop", "A pump"):
            assert kept in found.text
        for left_out in ("alert", "Home", "imprint", "b{}", "base64", "Pump\n"):
            assert left_out not in found.text
        assert "```\npump --stop *\n```" in found.text
        contexts = [piece.context for piece in chunk(found.text, "html").chunks]
        assert contexts == ["Pump_seal", "Pump_seal > Steps"]

    def test_asked_for_as_text_stays_as_it_is(self) -> None:
        assert read("a.html", "<p>x</p>", "text").text == "<p>x</p>"

    @pytest.mark.parametrize("hostile", ["<a " * 10_000, "<p>" + " " * 40_000 + "x"])
    def test_that_would_hold_up_everybody_costs_one_document(
        self, hostile: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(apart_module, "LIMIT_S", 0.5)
        assert refused("a.html", hostile) == ("text", "is HTML that took longer than 0.5 s to read")

    def test_that_is_a_longer_text_than_page_is_refused(self) -> None:
        quoted = "<blockquote>" * 11 + "<pre>" + "x\n" * 400_000
        assert refused("a.html", quoted) == ("text", "is HTML of more than 8388608 characters as text")

    def test_too_deep_or_too_long_is_refused(self) -> None:
        assert refused("a.html", "<div>" * 20_000 + "x") == ("text", "is HTML that is nested too deeply")
        assert refused("a.html", "<p>" + "x" * HTML_LIMIT_CHARS)[1].startswith("is HTML of more than")

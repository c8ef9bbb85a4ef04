"""Files become text, or are refused with a reason; PDF and HTML are read by a process of their own."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ingest.pdf_files import assembled, paper, written

from counterpoint.memory.ingest.chunk import chunk
from counterpoint.memory.ingest.readers import DocumentText, read
from counterpoint.memory.ingest.readers import reader_process as apart_module
from counterpoint.memory.ingest.readers.html import HTML_LIMIT_CHARS
from counterpoint.memory.ingest.readers.notebook import OUTPUT_CHARS
from counterpoint.memory.ingest.readers.table import TABLE_LIMIT_ROWS
from counterpoint.proto.conversation import Turn, transcript
from counterpoint.proto.errors import Permanent
from counterpoint.proto.ingest import ContentType

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


def refused(name: str, given: str | bytes, type: ContentType | None = None) -> tuple[str, str]:
    """The field and the problem that a document is refused with."""
    with pytest.raises(Permanent) as error:
        read(name, given, type)
    (problem,) = error.value.problems
    return problem.field, problem.problem


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


class TestTable:
    def test_is_a_markdown_table_whatever_its_delimiter(self) -> None:
        found = read("teams.csv", '\ufeffJob;Owner\n\n"load | all";"Ann\nLee"\nmail;\n')
        assert (found.type, found.problem) == ("markdown", None)
        assert found.text == "| Job | Owner |\n|---|---|\n| load \\| all | Ann Lee |\n| mail |  |\n"
        assert read("teams.TSV", "Job\tOwner\nload\tAnn, Lee\n").text.endswith("| load | Ann, Lee |\n")

    @pytest.mark.parametrize(
        "given", ["", "a,b\n", "a\nb\n", "a,b\n1,2,3\n", 'a,b\n"1,2\n', "a,b\n" + "1,2\n" * (TABLE_LIMIT_ROWS + 1)]
    )
    def test_without_the_form_of_a_table_or_too_long_is_plain_text(self, given: str) -> None:
        assert read("a.csv", given) == DocumentText(given, "text")

    def test_read_as_text_on_request_stays_as_it_is(self) -> None:
        assert read("a.csv", "a,b\n1,2\n", "text").text == "a,b\n1,2\n"


class TestAsciiDoc:
    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ("= Crane\n:port: 70\n// a comment\ninclude::x.adoc[]\n\nUse {port}.\n", "# Crane\n\nUse 70.\n"),
            (". One\n+\n[source,sh]\n----\nrun\n----\n. Two\n.. A\n* B\n\nEnd.\n\n. New\n",
             "1. One\n\n   ```sh\n   run\n   ```\n2. Two\n   1. A\n- B\n\nEnd.\n\n1. New\n"),
            ("Lamp:: It is red.\n\n.Sample\n....\nx\n....\n", "- **Lamp**: It is red.\n\n**Sample**\n\n```\nx\n```\n"),
            ("[WARNING]\n====\nRead <<top,this>>, xref:a.adoc[that] and https://b.c[more].\n====\n",
             "**Warning:**\n\nRead this, that and [more](https://b.c).\n"),
        ],
    )  # fmt: skip
    def test_is_markdown(self, given: str, expected: str) -> None:
        assert read("guide.adoc", given) == DocumentText(expected, "markdown")

    @pytest.mark.parametrize(
        "given",
        [
            "|===\n|Code |Cause\n\n|7\n|worn\nbelt\n|===\n",
            '[%header,cols="1,2"]\n|===\n|Code\n|Cause\n|7 a|worn belt\n|===\n',
        ],
    )
    def test_keeps_the_cells_of_a_table_in_their_rows(self, given: str) -> None:
        assert read("guide.asciidoc", given).text == "| Code | Cause |\n| --- | --- |\n| 7 | worn belt |\n"


class TestNotebook:
    def test_is_its_cells_in_order_with_code_and_outputs_in_fences(self) -> None:
        cells = [
            {"cell_type": "markdown", "source": ["# Load\n", "First."]},
            {
                "cell_type": "code",
                "source": "print('```')\nload()",
                "outputs": [
                    {"output_type": "stream", "text": ["one\n", "two\n"]},
                    {"output_type": "execute_result", "data": {"text/plain": "3", "image/png": "iVBOR"}},
                    {"output_type": "error", "ename": "KeyError", "evalue": "\x1b[31m'id'\x1b[0m", "traceback": ["x"]},
                ],
            },
            {"cell_type": "code", "source": [], "outputs": []},
            {"cell_type": "code", "source": "long()", "outputs": [{"output_type": "stream", "text": "x" * 5000}]},
        ]
        given = {"cells": cells, "metadata": {"kernelspec": {"language": "python"}}, "nbformat": 4}
        found = read("lab.ipynb", json.dumps(given))
        assert found.type == "notebook"
        assert found.text.startswith(
            "# Load\nFirst.\n\n````python\nprint('```')\nload()\n````\n\n```\none\ntwo\n3\nKeyError: 'id'\n```\n\n"
        )
        assert found.text.endswith(f"{'x' * OUTPUT_CHARS}\n... 3000 characters more\n```\n")
        assert "iVBOR" not in found.text
        assert chunk(found.text, "notebook").chunks[0].context == "Load"

    @pytest.mark.parametrize("given", ["{", "[]", "{}", '{"cells": 1}', "[" * 100_000])
    def test_without_the_form_of_a_notebook_is_refused(self, given: str) -> None:
        assert refused("lab.ipynb", given)[1].startswith("is not a notebook: ")

    def test_with_malformed_cells_keeps_the_legal_ones(self) -> None:
        cell = {"cell_type": "markdown", "source": "a \ud83d b"}
        assert read("lab.ipynb", json.dumps({"worksheets": [{"cells": 5}, {"cells": [7, cell]}]})).text == "a ? b\n"


class TestConversation:
    @pytest.mark.parametrize(
        ("name", "given", "expected"),
        [
            (
                "a.json",
                [{"speaker": "Ann", "text": "Hi: you", "at": "8 May"}, {"speaker": "Bob", "text": "a\nb: c"}],
                "[8 May] Ann: Hi: you\nBob: a\n b: c",
            ),
            (
                "chat.json",
                {"messages": [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": None}]},
                "user: Why?",
            ),
            ("p.json", [{"role": "user", "content": [{"type": "text", "text": "Look"}]}], "user: Look"),
            (
                "2017-11-30.json",
                [
                    {"type": "message", "user": "U1", "text": "down", "ts": "1512085950.000216"},
                    {
                        "type": "message",
                        "user": "U2",
                        "user_profile": {"real_name": "Bob B"},
                        "text": "up",
                        "ts": "1512085960",
                    },
                ],
                "[2017-11-30T23:52:30Z] U1: down\n[2017-11-30T23:52:40Z] Bob B: up",
            ),
            ("s.json", [{"conversations": [{"from": "human", "value": "Hi"}]}], "human: Hi"),
            (
                "t.json",
                [{"author": {"name": "Ann"}, "body": "x", "timestamp": 1512085950000}],
                "[2017-11-30T23:52:30Z] Ann: x",
            ),
        ],
    )
    def test_is_known_by_the_usual_shapes_of_json(self, name: str, given: Any, expected: str) -> None:
        found = read(name, json.dumps(given))
        assert (found.type, found.text, found.problem) == ("conversation", expected, None)

    def test_by_lines_is_known_too(self) -> None:
        lines = "\n".join(json.dumps({"name": name, "message": "x"}) for name in "ab")
        assert read("chat.jsonl", lines + "\n").text == "a: x\nb: x"
        assert read("-", lines, "conversation").text == "a: x\nb: x"

    @pytest.mark.parametrize(
        "given", ['{"a": 1}', "[1, 2]", '[{"text": "x"}]', '[{"user": "x"}]', "{", "[" * 100_000, ""]
    )
    def test_other_json_is_text(self, given: str) -> None:
        assert read("a.json", given).type == "text"

    def test_nested_too_deeply_is_text(self) -> None:
        given = '[{"speaker": "Ann", "text": ' + "[" * 960 + "1" + "]" * 960 + "}]"
        assert read("a.json", given).type == "text"

    @pytest.mark.parametrize("at", ["1" + "0" * 400, "1e400", "-1", "true"])
    def test_with_an_invalid_time_keeps_the_text_of_the_time(self, at: str) -> None:
        found = read("a.json", f'[{{"speaker": "Ann", "text": "half \\ud83d", "at": {at}}}]')
        assert found.type == "conversation"
        assert found.text.endswith("] Ann: half ?")

    def test_that_is_a_transcript_already_stays_as_it_is(self) -> None:
        text = transcript([Turn("Ann", "a\nb: c", "8 May"), Turn("Bob", "d")])
        found = read("talk.txt", text, "conversation")
        assert (found.text, found.type) == (text, "conversation")

    @pytest.mark.parametrize(
        "given",
        [
            "[2024-01-05 10:31] Ann B: hello\nand more\n[2024-01-05 10:32] Bob: bye\n",
            "2024-01-05 10:31 - Ann B: hello\nand more\n2024-01-05 10:32 - Bob: bye\n",
            "2024-01-05 10:31 <Ann B> hello\nand more\n2024-01-05 10:32 <Bob> bye",
        ],
    )
    def test_as_it_is_kept_by_chat_programs_is_a_transcript(self, given: str) -> None:
        text = read("talk.txt", given, "conversation").text
        assert [(piece.text, piece.context) for piece in chunk(text, "conversation").chunks] == [
            ("hello\nand more", "2024-01-05 10:31 | Ann B"),
            ("bye", "2024-01-05 10:32 | Bob"),
        ]

    @pytest.mark.parametrize("given", ["Just a text.", '{"a": 1}', "[1]"])
    def test_without_a_turn_is_read_as_text_and_says_so(self, given: str) -> None:
        found = read("a", given, "conversation")
        assert (found.text, found.type) == (given, "text")
        assert (found.problem or "").startswith("not read as a conversation but as plain text: ")

"""Tables, AsciiDoc, notebooks and conversations are read as text that keeps their structure."""

import json
from typing import Any

import pytest
from ingest.refused_reading import refused

from counterpoint.memory.ingest.chunk import chunk
from counterpoint.memory.ingest.readers import DocumentText, read
from counterpoint.memory.ingest.readers.notebook import OUTPUT_CHARS
from counterpoint.memory.ingest.readers.table import TABLE_LIMIT_ROWS
from counterpoint.proto.conversation import Turn, transcript


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

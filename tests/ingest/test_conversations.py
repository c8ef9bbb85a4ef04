"""A conversation is one text, cut by turn from the text alone; who spoke and when stands in the context."""

from hypothesis import given
from hypothesis import strategies as st

from counterpoint.memory.ingest.chunk import chunk
from counterpoint.proto.conversation import TURN, Turn, transcript

_texts = st.lists(
    st.sampled_from(["Note: this", "[10:31] Bob: no", "Bob:", "bob@example.com: x", "", "  in", "x" * 700, "\r", "a b"])
    | st.text(max_size=40),
    max_size=6,
).map("\n".join)
_names = st.sampled_from(["alice", "Bob", "U1:bot", "[x]", "", " ", "a\nb", "x" * 200]) | st.text(max_size=20)
turns = st.builds(Turn, speaker=_names, text=_texts, at=st.none() | _names | st.just("2026-11-22T10:00:00Z"))


def _words(text: str) -> list[str]:
    return text.split()


@given(st.lists(turns, max_size=8), st.integers(1, 1200))
def test_every_turn_is_found_again_with_nothing_of_its_text_lost(given_: list[Turn], max_chars: int) -> None:
    text = transcript(given_)
    assert len(TURN.findall(text)) == len(given_)
    chunks = chunk(text, "conversation", max_chars).chunks
    at = 0
    for piece in chunks:
        assert text[piece.start : piece.end] == piece.text
        assert piece.start >= at
        assert 0 < len(piece.text) <= max_chars
        at = piece.end
    assert "".join("".join(_words(piece.text)) for piece in chunks) == "".join(
        "".join(_words(turn.text)) for turn in given_
    )


def test_a_turn_is_a_chunk_with_speaker_time_and_context() -> None:
    text = transcript(
        [
            Turn("Caroline", "I went to the group yesterday.\nNote: it was good.", "1:56 pm on 8 May, 2023"),
            Turn("Mel", "Wow!", "1:57 pm on 8 May, 2023"),
            Turn("Caroline", "Yes."),
        ]
    )
    assert text == (
        "[1:56 pm on 8 May, 2023] Caroline: I went to the group yesterday.\n Note: it was good.\n"
        "[1:57 pm on 8 May, 2023] Mel: Wow!\nCaroline: Yes."
    )
    first = "I went to the group yesterday. Note: it was good."
    assert [
        (piece.text, piece.context, piece.speaker, piece.around) for piece in chunk(text, "conversation").chunks
    ] == [
        (
            "I went to the group yesterday.\n Note: it was good.",
            "1:56 pm on 8 May, 2023 | Caroline",
            "Caroline",
            ("Wow!", "Yes."),
        ),
        ("Wow!", "1:57 pm on 8 May, 2023 | Mel", "Mel", (f"{first} Yes.",)),
        ("Yes.", "Caroline", "Caroline", ("Wow!", first)),
    ]


def test_a_long_turn_is_several_chunks_and_each_knows_the_end_of_the_turn_before() -> None:
    text = transcript([Turn("a", "the start" + " word" * 100 + " the end"), Turn("b", "One sentence. " * 100)])
    first, *rest = chunk(text, "conversation").chunks
    assert first.around[0].startswith("One sentence.")
    assert len(rest) == 2
    assert {(piece.context, piece.around) for piece in rest} == {("b", rest[0].around)}
    assert rest[0].around[0].startswith("word word")
    assert rest[0].around[0].endswith("word the end")
    assert max(len(first.around[0]), len(rest[0].around[0])) <= 300


def test_redaction_adds_and_removes_no_turn() -> None:
    redacted = (
        transcript([Turn("ann@example.com", "call\nhttps://u:secret@host: now"), Turn("b", "ok")])
        .replace("ann@example.com", "[redacted:email]")
        .replace("https://u:secret@host", "[redacted:uri-password]")
    )
    assert [piece.text for piece in chunk(redacted, "conversation").chunks] == [
        "call\n [redacted:uri-password]: now",
        "ok",
    ]

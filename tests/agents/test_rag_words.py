"""Pure rules of retrieval: the route of a question, its follow-ups, its rewrites and its exact forms."""

import pytest
from agents.developer_memory import START
from agents.rag_hits import FOUND, hit
from hypothesis import example, given
from hypothesis import strategies as st

from counterpoint.developer.evidence.search_query import QUERY_CHARS, SearchQuery
from counterpoint.developer.language.exact_forms import exact
from counterpoint.developer.rag.rewrite import rewrite, text_to_grade
from counterpoint.developer.rag.route import (
    available_route,
    earlier_questions,
    follows_on,
    route,
    search_query_of,
    words_key,
)
from counterpoint.developer.rag.run import Run
from counterpoint.manager.sessions import with_task
from counterpoint.proto.tasks import SubmitTask, TaskRouted

CHATTY = (
    "Hi team, sorry to bother you again, could somebody please remind me what the pager policy is when a team cannot "
    "be reached? Thanks a lot!"
)


class TestRoute:
    @pytest.mark.parametrize("question", ["What is it?", "Who is he and why?"])
    def test_without_content_words_meaning_alone_counts(self, question: str) -> None:
        assert route(question).mode == "vector"

    def test_other_questions_are_looked_up_by_words_and_meaning(self) -> None:
        assert route("Who owns finance_daily?").mode == "hybrid"

    @pytest.mark.parametrize(
        "question", ["What is the latest version of Airflow?", "Is CVE-2026-1234 fixed?", "What is in the news?"]
    )
    def test_the_world_outside_is_looked_up_on_the_web_where_there_is_a_search(self, question: str) -> None:
        by_rules = route(question)
        assert (by_rules.mode, available_route(by_rules, True)) == ("web", by_rules)
        without = available_route(by_rules, False)
        assert without.mode == "hybrid"
        assert "web_unavailable" in without.reason

    @given(st.text(max_size=300), st.booleans())
    def test_every_question_has_a_way_with_a_reason(self, question: str, web: bool) -> None:
        found = available_route(route(question), web)
        assert found.reason
        assert found.mode != "web" or web

    def test_questions_of_the_same_words_have_one_key(self) -> None:
        assert words_key("Who owns finance_daily?") == words_key("finance_daily: who OWNS?")
        assert words_key("Who owns finance_daily?") != words_key("Who reads finance_daily?")
        assert words_key("什么是 Airflow") != words_key("安装 Airflow")


def summary(*questions: str, kind: str = "question", title: str | None = None) -> str:
    """The summary of a session of these questions, as the manager writes it; `title` is that of the last."""
    session = None
    for n, text in enumerate(questions):
        task = SubmitTask(kind=kind, description=text, title=title if n == len(questions) - 1 else None)
        message = TaskRouted(
            task_id=f"t-{n}", project="shop", task=task, submitted_by="ann", submitted_by_kind="person",
            submitted_at=START, lane="answer", reason="asked", action_id=f"a-{n}",
        )  # fmt: skip
        session = with_task(session, message, START)
    assert session is not None
    return session.summary


class TestFollowUps:
    def test_a_question_that_points_back_is_asked_with_the_one_before_it(self) -> None:
        before = earlier_questions(summary("Who owns finance_daily?", "And when does it run?"), "And when does it run?")
        looked = search_query_of("And when does it run?", before)
        assert looked.text == "Who owns finance_daily? And when does it run?"
        assert looked.also == ("And when does it run?",)
        assert "Who owns finance_daily?" in looked.why

    def test_a_follow_up_goes_back_to_a_question_that_stands_alone(self) -> None:
        turns = ("Who owns orders?", "Who owns finance_daily?", "And when does it run?", "And who reads it?")
        looked = search_query_of(turns[-1], earlier_questions(summary(*turns), turns[-1]))
        assert looked.text == "Who owns finance_daily? And when does it run? And who reads it?"

    @pytest.mark.parametrize("question", ["Which file does clean_orders write?", "When are plants watered?"])
    def test_a_question_that_stands_alone_is_asked_alone(self, question: str) -> None:
        assert not follows_on(question)
        assert search_query_of(question, ("Who owns finance_daily?",)) == SearchQuery(text=question)

    def test_a_failure_before_it_counts_too(self) -> None:
        said = summary("finance_daily failed", kind="troubleshoot") + "\nquestion: Who owns it?"
        assert (
            search_query_of("Who owns it?", earlier_questions(said, "Who owns it?")).text
            == "finance_daily failed Who owns it?"
        )

    def test_only_turns_before_its_own_are_earlier_questions(self) -> None:
        turns = summary("Who owns orders?", "And who reads it?", "When are plants watered?")
        assert earlier_questions(turns, "And who reads it?") == ("Who owns orders?",)
        assert earlier_questions(summary("And who reads it?"), "And who reads it?") == ()
        assert earlier_questions(summary("And why?", "And why?"), "And why?") == ()

    def test_a_titled_question_is_found_in_its_session_by_the_title(self) -> None:
        turns = summary("Who owns orders?", "And who reads it? " + "x" * 300, title="Readers")
        assert earlier_questions(turns, "Readers") == ("Who owns orders?",)

    def test_a_long_question_knows_its_own_turn(self) -> None:
        long = "And why does it " + "so " * 200 + "fail?"
        assert earlier_questions(summary("Who owns orders?", long), long) == ("Who owns orders?",)

    def test_a_turn_with_the_same_beginning_is_another_turn(self) -> None:
        turns = summary("Who owns it", "Who owns it now")
        assert earlier_questions(turns, "Who owns it now") == ("Who owns it",)


class TestRewrite:
    def test_courtesy_and_chatter_are_left_out(self) -> None:
        other = rewrite(CHATTY, SearchQuery(text=CHATTY), FOUND, 0)
        assert other is not None
        assert other.text == "what the pager policy is when a team cannot be reached?"

    @pytest.mark.parametrize(
        ("said", "point"),
        [
            ("Hello! I was wondering, who owns orders.parquet?", "who owns orders.parquet?"),
            ("Could you tell us who unlocks a locked account, please?", "who unlocks a locked account?"),
            ("Morning all. Any idea which resolvers the workers use?", "which resolvers the workers use?"),
            ("It broke at 6. Does anybody know why finance_daily fails? Cheers", "why finance_daily fails?"),
        ],
    )
    def test_courtesy_is_removed_from_the_question(self, said: str, point: str) -> None:
        other = rewrite(said, SearchQuery(text=said), (), 0)
        assert other is not None
        assert other.text == point

    def test_a_double_question_is_asked_in_parts(self) -> None:
        double = "Who owns finance_daily and which file does clean_orders write?"
        other = rewrite(double, SearchQuery(text=double), FOUND, 0)
        assert other is not None
        assert other.also == ("Who owns finance_daily", "which file does clean_orders write")

    def test_a_precise_question_is_widened_by_words_of_the_passages_found(self) -> None:
        question = "Who owns finance_daily?"
        found = (hit("The owner is the ledger team."), hit("Ask the ledger team about the owner.", 1))
        other = rewrite(question, SearchQuery(text=question), found, 0)
        assert other is not None
        assert other.also == ("owns finance_daily ledger owner team",)
        assert other.text == question, "what is found by other words is graded by the question"

    def test_a_rewrite_without_new_words_is_none(self) -> None:
        assert rewrite("pager policy", SearchQuery(text="pager policy"), (), 0) is None
        assert rewrite("What is it?", SearchQuery(text="What is it?"), FOUND, 0) is None

    words = st.sampled_from(
        [*"?!.,;\n ", "and", "or", "please", "Hi team", "who", "finance_daily", "orders", "a.b", "é"]
    )
    questions = st.one_of(st.text(min_size=1, max_size=200), st.lists(words, min_size=1, max_size=60).map(" ".join))

    @given(questions, st.lists(questions, max_size=4))
    @example("word " * 3_000 + "?", [])
    @example("a" + " " * 15_000 + "b?", [])
    @example("Hi. " * 4_000, [])
    def test_a_rewrite_is_bounded_not_empty_and_new(self, question: str, texts: list[str]) -> None:
        found = tuple(hit(text, n) for n, text in enumerate(texts))
        before = search_query_of(question, ())
        known = [before]
        for rewrites in range(2):
            other = rewrite(question, before, found[rewrites:], rewrites)
            if other is None:
                return
            assert other.text.strip()
            assert all(text.strip() for text in other.also)
            assert all(len(text) <= QUERY_CHARS for text in (other.text, *other.also))
            assert len(other.also) <= 4, "what a search takes"
            assert all((other.text, other.also) != (each.text, each.also) for each in known)
            known.append(before := other)


class TestExact:
    @pytest.mark.parametrize(
        ("said", "held"),
        [
            ("5", "-5"), ("-5", "5"), ("-3.5", "3.5"), ("3.5", "-3.5"), ("5 %", "5"), ("50%", "5%"), (".7", ".5"),
            ("1,500", "15,00"), ("1500", "150"), ("12:30", "2:30"), ("2026-11-20", "2026-11-21"), ("May 5", "March 5"),
            ("on Tuesday", "on Wednesday"), ("v1.2.3", "v1.2.4"), ("finance_daily", "finance_weekly"), ("30s", "30m"),
            ("clean/orders.parquet", "raw/orders.parquet"), ("fetchOrders", "fetchRows"), ("ERR42", "ERR43"),
            ("10GB", "1GB"), ("10", "1"), ("1e-5", "1e-6"), ("80", "8080"),
        ],
    )  # fmt: skip
    def test_texts_with_different_exact_forms_differ(self, said: str, held: str) -> None:
        assert exact(said) - exact(held)

    @pytest.mark.parametrize(
        ("said", "held"),
        [
            ("5%", "5 %"), ("5 percent", "5%"), ("1500", "1,500"), ("1,000,000", "1000000"), ("−5", "-5"),
            ("Finance_Daily", "finance_daily"), ("3 Mar", "3 March"), ("It may fail.", "It fails."), ("(5)", "5."),
        ],
    )  # fmt: skip
    def test_other_spellings_of_an_exact_form_are_equal(self, said: str, held: str) -> None:
        assert exact(said) <= exact(held)

    @given(st.text(max_size=100))
    def test_a_text_holds_its_own(self, text: str) -> None:
        assert exact(text) <= exact(f"{text}\n")


@pytest.mark.parametrize(
    ("question", "judged"),
    [
        ("Good morning everybody! We had cake, by the way. I was wondering: who pages a team? Thanks, see you!",
         "who pages a team?"),
        ("The primary burned down. Please tell me what still works?", "The primary burned down. what still works?"),
        ("Hello, thanks!", "Hello, thanks!"),
    ],
)  # fmt: skip
def test_a_rewritten_search_is_graded_by_the_question_without_courtesy(question: str, judged: str) -> None:
    assert text_to_grade(Run(question=question, meant=question, rewrites=1)) == judged
    assert text_to_grade(Run(question=question, meant=question)) == question

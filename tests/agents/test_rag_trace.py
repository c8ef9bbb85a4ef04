"""Deadlines and routes of the steps of a question, and what its line says about them."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from agents.process_death import ProcessDeath
from agents.question_runs import KNOWN, OWNED, QUESTION, RIGHT, ROUTED, WRONG, Book, Model, book, delivered, question
from agents.steps import handle_in_steps
from prometheus_client import REGISTRY

from counterpoint.client.gateway import WebResult
from counterpoint.developer.rag.route import words_key
from counterpoint.proto.errors import Conflict
from counterpoint.proto.messages import utc_now


class TestTime:
    async def test_a_slow_model_leaves_time_to_end(self) -> None:
        shelf, gateway = book(OWNED), Model(RIGHT)
        gateway.slow = True
        await delivered(book(OWNED), question())
        await delivered(shelf, question(), gateway, deadline_s=1.0)
        assert shelf.worked().outcome == "answered"
        assert "finance_daily is owned by the finance team." in (shelf.worked().text or "")
        route_s, generate_s = gateway.deadlines
        assert route_s <= 0.2
        assert generate_s <= 0.6

    @pytest.mark.parametrize("left_s", [-3600, -1, 0])
    async def test_after_the_deadline_of_the_task_no_model_is_called(self, left_s: float) -> None:
        shelf, gateway = book(OWNED), Model(RIGHT, pages=())
        news = "What is the latest version of finance_daily?"
        await delivered(shelf, question(news, deadline=utc_now() + timedelta(seconds=left_s)), gateway)
        assert gateway.asked == []
        assert shelf.worked().outcome in ("answered", "stopped")

    async def test_without_time_no_other_words_are_tried_and_that_is_said(self) -> None:
        shelf = book(OWNED)
        chatty = "Hello! Could you tell me which colour has the parental leave of the office?"
        await delivered(shelf, question(chatty, deadline=utc_now() - timedelta(seconds=1)))
        assert [action["kind"] for action in shelf.line()] == ["route", "search", "assess", "escalate"]
        assert "the time limit was reached before the question could be rewritten" in shelf.worked().findings.caveats

    @pytest.mark.parametrize(("took_s", "left_s"), [(8.0, 12.0), (25.0, None)])
    async def test_a_delivery_has_the_time_that_those_before_it_have_left(
        self, monkeypatch: pytest.MonkeyPatch, took_s: float, left_s: float | None
    ) -> None:
        now = 1000.0
        monkeypatch.setattr("counterpoint.developer.rag.step_runner.time", SimpleNamespace(monotonic=lambda: now))
        shelf, gateway = book(OWNED), Model(ROUTED, RIGHT)

        def asked(what: str) -> None:
            nonlocal now
            now += took_s

        def killed(what: str) -> None:
            if what == "commit":
                raise ProcessDeath

        gateway.after, shelf.after = asked, killed
        with pytest.raises(ProcessDeath):
            await delivered(shelf, question(), gateway, deadline_s=20.0)
        shelf.after, now = lambda what: None, now + 3600
        await delivered(shelf, question(), gateway, deadline_s=20.0)
        assert gateway.deadlines[1:] == ([] if left_s is None else [pytest.approx(0.6 * left_s)])
        assert shelf.worked().outcome == "answered"

    async def test_the_deadline_of_the_task_counts_where_it_is_nearer(self) -> None:
        shelf, gateway = book(OWNED), Model(RIGHT)
        await delivered(shelf, question(deadline=utc_now() + timedelta(seconds=5)), gateway, deadline_s=600)
        assert max(gateway.deadlines) <= 3.0


class TestTrace:
    async def test_each_node_decides_in_order_and_is_on_the_line(self) -> None:
        shelf = book(OWNED)
        await delivered(shelf, question(), Model(ROUTED, WRONG, RIGHT))
        kinds = ["route", "search", "assess", "generate", "validate", "generate", "validate", "answer", "review"]
        said = [
            "route",
            "retrieve",
            "retrieval_grade",
            "generate",
            "validate",
            "generate",
            "validate",
            "answer",
            "review",
        ]
        assert [action["kind"] for action in shelf.line()] == kinds
        decisions = shelf.decisions()
        assert [each.decision_type for each in decisions] == said
        assert [each.parent_decision_id for each in decisions] == [None, *(each.decision_id for each in decisions[:-1])]
        assert [action["decision_id"] for action in shelf.line()] == [each.decision_id for each in decisions]
        assert decisions[0].reasoning == "it is about a job of the team"
        assert "0 of 1 sentences are supported" in decisions[4].reasoning
        assert "contains 17" in decisions[4].reasoning
        assert [each.model for each in decisions].count("m") == 2

    async def test_metrics_count_routes_corrections_validations_and_endings(self) -> None:
        def counted() -> dict[str, float]:
            names = {
                "routes": ("counterpoint_rag_routes_total", {"mode": "hybrid", "by": "model"}),
                "by rules": ("counterpoint_rag_routes_total", {"mode": "hybrid", "by": "rules"}),
                "corrections": ("counterpoint_rag_corrections_total", {}),
                "supported": ("counterpoint_rag_validations_total", {"verdict": "supported"}),
                "unsupported": ("counterpoint_rag_validations_total", {"verdict": "unsupported"}),
                "answered": ("counterpoint_rag_endings_total", {"ending": "answered"}),
                "fallback": ("counterpoint_rag_endings_total", {"ending": "fallback"}),
                "stopped": ("counterpoint_rag_endings_total", {"ending": "insufficient_evidence"}),
            }
            return {name: REGISTRY.get_sample_value(*of) or 0.0 for name, of in names.items()}

        before = counted()
        await delivered(book(OWNED), question(), Model(ROUTED, WRONG, RIGHT))
        await delivered(book(OWNED), question(), Model(ROUTED, WRONG, WRONG))
        await delivered(book(OWNED), question("Hello, please tell me which colour has the parental leave?"))
        changed = {name: value - before[name] for name, value in counted().items()}
        assert changed.pop("corrections") >= 1
        assert changed == {
            "routes": 2, "by rules": 1, "supported": 2, "unsupported": 2, "answered": 2, "fallback": 0, "stopped": 1,
        }  # fmt: skip

    async def test_a_model_whose_drafts_are_unsupported_leaves_the_answer_of_the_rules(self) -> None:
        by_rules, shelf = book(OWNED), book(OWNED)
        await delivered(by_rules, question())
        await delivered(shelf, question(), Model(ROUTED, WRONG, WRONG))
        expected, worked = by_rules.worked(), shelf.worked()
        assert (worked.outcome, worked.text, worked.confidence) == ("answered", expected.text, expected.confidence)
        assert worked.findings.citations == expected.findings.citations
        (caveat,) = worked.findings.caveats
        assert caveat == (
            "the answer consists of quotes, because the model's was not supported: "
            "it contains 17, which the cited text does not"
        )
        validated = [each for each in shelf.decisions() if each.decision_type == "validate"]
        assert [each.decision for each in validated] == ["again", "fall back to quotes"]

    async def test_a_model_that_finds_no_answer_leaves_that_of_the_rules_with_less_confidence(self) -> None:
        by_rules, shelf = book(OWNED), book(OWNED)
        await delivered(by_rules, question())
        await delivered(shelf, question(), Model(ROUTED, "NO ANSWER"))
        expected, worked = by_rules.worked(), shelf.worked()
        assert (worked.outcome, worked.text) == ("answered", expected.text)
        assert expected.confidence is not None
        assert worked.confidence is not None
        assert (expected.confidence.band, worked.confidence.band) == ("high", "medium")
        assert worked.findings.caveats == (
            "the model found no answer in these passages, so the answer consists of quotes",
        )

    async def test_a_reassessment_that_still_stops_leaves_no_stop_on_the_line(self) -> None:
        shelf = book(OWNED)
        await delivered(shelf, question("Which colour has the parental leave?", purpose="reassess"))
        assert "escalate" not in [action["kind"] for action in shelf.line()]
        assert shelf.worked().action_id == shelf.line()[-1]["action_id"]

    async def test_candidates_come_with_insufficient_evidence(self) -> None:
        shelf = book(OWNED)
        await delivered(shelf, question("Which plants has the parental leave?"))
        worked = shelf.worked()
        assert worked.code == "insufficient_evidence"
        assert worked.findings.citations
        assert "the citations are candidates, not an answer" in worked.findings.caveats

    async def test_nothing_is_called_a_candidate_in_a_project_without_documents(self) -> None:
        shelf = Book()
        await delivered(shelf, question("Which plants has the parental leave?"))
        worked = shelf.worked()
        assert (worked.code, worked.findings.citations, worked.findings.caveats) == ("insufficient_evidence", (), ())


class TestRoutes:
    async def test_a_route_is_asked_of_the_model_once_for_the_same_words(self) -> None:
        shelf, gateway = book(OWNED), Model(ROUTED, RIGHT)
        await delivered(shelf, question(), gateway)
        memory = shelf.delivered("another", "t")
        await handle_in_steps(question("finance_daily: who owns?"), memory, gateway, KNOWN)
        assert [key for key, _ in gateway.asked].count("00-route") == 1
        assert "cached for the same words" in shelf.decisions()[-4].reasoning + shelf.decisions()[-5].reasoning

    async def test_another_question_of_the_same_words_may_have_kept_its_route_first(self) -> None:
        shelf, gateway = book(OWNED), Model(ROUTED, RIGHT)
        gateway.after = lambda what: shelf.put("routes", words_key(QUESTION), {"mode": "hybrid", "reason": "theirs"})
        with pytest.raises(Conflict):
            await delivered(shelf, question(), gateway)
        gateway.after = lambda what: None
        await delivered(shelf, question(), gateway)
        assert shelf.line()[0]["reasoning"].startswith("theirs (cached for the same words)")
        assert shelf.worked().outcome == "answered"

    @pytest.mark.parametrize("said", ["no JSON", "[]", '{"mode": "moon", "reason": "r"}', '{"mode": "web"}', "null"])
    async def test_an_unusable_reply_leaves_the_route_to_the_rules(self, said: str) -> None:
        shelf = book(OWNED)
        await delivered(shelf, question(), Model(said, RIGHT))
        assert "the reply of the model could not be used" in shelf.line()[0]["reasoning"]
        assert not shelf.kept("routes")
        assert shelf.worked().outcome == "answered"

    async def test_a_model_that_wants_the_web_is_told_that_there_is_none(self) -> None:
        shelf = book(OWNED)
        await delivered(shelf, question(), Model('{"mode": "web", "reason": "news"}', RIGHT))
        assert shelf.line()[0]["result"] == "hybrid"
        assert "web_unavailable" in shelf.line()[0]["reasoning"]

    async def test_pages_of_the_web_are_leads_and_no_evidence(self) -> None:
        page = WebResult(title="finance_daily is owned by nobody", url="https://example.org/x", snippet="s")
        shelf, gateway = book(), Model('{"mode": "web", "reason": "news"}', pages=(page,))
        await delivered(shelf, question("What is the latest version of Airflow?"), gateway)
        worked = shelf.worked()
        assert worked.code == "insufficient_evidence"
        assert any("https://example.org/x" in need.how for need in worked.needs)
        assert "owned by nobody" not in str(worked.findings)

    @pytest.mark.parametrize(
        ("web", "permitted", "searched", "wanted", "why"),
        [
            ("ask", None, 0, "What is the latest version of Airflow?", "needs an approval"),
            ("ask", "another question", 0, "What is the latest version of Airflow?", "needs an approval"),
            ("ask", "What is the latest version of Airflow?", 1, None, None),
            ("refuse", "What is the latest version of Airflow?", 0, None, "refuses searches of the web"),
            ("allow", None, 1, None, None),
        ],
    )
    async def test_the_web_is_searched_only_with_a_permit(
        self, web: str, permitted: str | None, searched: int, wanted: str | None, why: str | None
    ) -> None:
        page = WebResult(title="Airflow 3.3", url="https://example.org/x", snippet="s")
        shelf, gateway = book(), Model('{"mode": "web", "reason": "news"}', pages=(page,))
        message = question("What is the latest version of Airflow?")
        await delivered(shelf, message.model_copy(update={"web": web, "permitted_search": permitted}), gateway)
        worked = shelf.worked()
        assert worked.wanted_search == wanted
        assert sum("https://example.org/x" in need.how for need in worked.needs) == searched
        assert why is None or any(why in each for each in worked.findings.caveats), worked.findings.caveats

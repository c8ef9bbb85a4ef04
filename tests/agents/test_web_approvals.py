"""Approvals of web searches: a person sees the words that would leave the house."""

from typing import Any

from agents.approval_house import ASKING, HOUR, approvals, decide, pending_approval, tell
from agents.manager_house import PROJECT, House

from counterpoint.proto.approvals import artifact_sha256
from counterpoint.proto.tasks import TaskDelegated, TaskEscalated


class TestWeb:
    QUERY = "What is the latest version of Airflow?"

    def wants(self, autonomy: str = "supervised", **more: Any) -> House:
        """A question that memory cannot answer and for which the developer would search the web."""
        house = House(approvals=ASKING)
        house.route(kind="question", autonomy=autonomy)
        rule = house.last(TaskDelegated).web
        more = {"wanted_search": self.QUERY, "code": "insufficient_evidence", **more} if rule == "ask" else more
        house.developer("stopped", **{"code": "insufficient_evidence", **more})
        return house

    def test_the_developer_is_told_the_rule_for_the_autonomy_of_the_task(self) -> None:
        for autonomy, rule in (("supervised", "ask"), ("milestone", "allow"), ("autonomous", "refuse")):
            house = House(approvals=ASKING)
            house.route(kind="question", autonomy=autonomy)
            assert house.last(TaskDelegated).web == rule

    def test_the_words_of_a_search_are_approved_and_only_these_are_permitted(self) -> None:
        house = self.wants()
        approval = pending_approval(house)
        assert (approval.category, approval.artifact) == ("web", f"Search the web for:\n{self.QUERY}")
        assert "TaskEscalated" not in house.names()
        decide(house)
        delegated = house.last(TaskDelegated)
        assert (delegated.attempt, delegated.web, delegated.permitted_search) == (1, "ask", self.QUERY)
        assert [each.state for each in approvals(house)] == ["applied"]
        house.developer("stopped", code="insufficient_evidence", wanted_search="another question")
        assert pending_approval(house).artifact == "Search the web for:\nanother question"

    def test_words_other_than_those_approved_are_not_permitted(self) -> None:
        house = self.wants()
        other = f"Search the web for:\nthe password of {PROJECT}"
        altered = {"artifact": other, "artifact_sha256": artifact_sha256(other), "state": "approved"}
        made = pending_approval(house).model_copy(update=altered | {"decided_by": "ana", "decided_at": house.now})
        house.put("approvals", made.approval_id, made.model_dump(mode="json", exclude_none=True), author="router")
        tell(house, made)
        assert house.last(TaskEscalated).code == "insufficient_evidence"
        assert house.task().permitted_search is None

    def test_without_an_approval_the_task_goes_on_without_the_search(self) -> None:
        house = self.wants()
        decide(house, "rejected")
        assert house.last(TaskEscalated).code == "insufficient_evidence"
        assert house.task().permitted_search is None
        house = self.wants()
        house.wait(HOUR)
        assert [each.state for each in approvals(house)] == ["expired"]
        assert house.last(TaskEscalated).code == "insufficient_evidence"

    def test_a_search_that_needs_no_approval_is_not_asked_for(self) -> None:
        for autonomy in ("milestone", "autonomous"):
            house = self.wants(autonomy)
            assert not approvals(house)
            assert house.last(TaskEscalated).code == "insufficient_evidence"

    def test_a_new_attempt_needs_a_permit_of_its_own(self) -> None:
        house = self.wants()
        decide(house)
        house.override(instruction="look again", by="ada")
        assert house.last(TaskDelegated).permitted_search is None

    def test_a_document_that_came_while_a_person_decided_is_not_missed(self) -> None:
        for decision, woken in (("rejected", True), (None, True), ("rejected", False)):
            house = self.wants()
            house.wait(5)
            if woken:
                house.ingest()
            if decision:
                decide(house, decision)
            else:
                house.wait(HOUR)
            house.wait(5)
            assert house.task().waiting_for == "documents"
            assert (
                bool([each for each in house.work_under_way() if getattr(each.message, "purpose", "") == "reassess"])
                is woken
            )

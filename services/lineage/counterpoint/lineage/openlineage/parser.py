"""Tolerant parser of OpenLineage events.

The fields that identify an event are required. All others may be missing, null, malformed or unknown: they are left
out, and `ignored` lists the known fields that could not be parsed.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from counterpoint.graph.names import NAME_LIMIT_CHARS, OWN_NAMESPACE, Node, NodeKind
from counterpoint.lineage.openlineage.events import (
    DatasetEvent,
    DatasetUse,
    EventType,
    JobEvent,
    JobFacts,
    OpenLineageEvent,
    RunError,
    RunEvent,
    RunRef,
)
from counterpoint.lineage.openlineage.facets import (
    airflow,
    airflow_owners,
    code_location,
    fallback_error,
    neighbours,
    owners,
    parse_time,
    run_error,
    text,
)
from counterpoint.lineage.openlineage.run_facts import run_facts
from counterpoint.proto.errors import ErrorCode, Permanent, Problem

RUN_ID_LIMIT_CHARS = 200


def parse_event(raw: object) -> OpenLineageEvent:
    """Parse an event from a decoded JSON value. Raises `Permanent` with every field that makes it unusable."""
    parser = _Parser()
    event = parser.event(raw)
    if event is None:
        raise Permanent(ErrorCode.INVALID_LINEAGE_EVENT, tuple(parser.problems))
    return event


class _Parser:
    """Parses one event; collects `problems` that make it unusable, and `ignored` fields."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.ignored: list[Problem] = []

    def event(self, raw: object) -> OpenLineageEvent | None:
        if not isinstance(raw, Mapping):
            self._refuse("", "is not a JSON object")
            return None
        at = self._required_time(raw)
        match raw:
            case {"run": Mapping() as run}:
                return self._run_event(raw, at, run)
            case {"run": run} if run is not None:
                self._refuse("run", "is not an object")
            case {"job": job} if job is not None:
                facts = self._job(raw)
                if at is not None and facts is not None:
                    inputs, outputs = self._datasets(raw, "inputs"), self._datasets(raw, "outputs")
                    return JobEvent(at=at, job=facts, inputs=inputs, outputs=outputs, ignored=tuple(self.ignored))
            case {"dataset": dataset} if dataset is not None:
                use = self._dataset(dataset, "dataset", self.problems)
                if at is not None and use is not None:
                    return DatasetEvent(at=at, dataset=use, ignored=tuple(self.ignored))
            case _:
                self._refuse("job", "is missing: an event needs a run and its job, a job, or a dataset")
        return None

    def _run_event(self, raw: Mapping[str, Any], at: datetime | None, run: Mapping[str, Any]) -> RunEvent | None:
        run_id = self._name(run, "run", "runId", self.problems, RUN_ID_LIMIT_CHARS)
        facts = self._job(raw)
        kind = self._event_type(raw)
        if at is None or run_id is None or facts is None or kind is None:
            return None
        facets = self._facets(run, "run.facets")
        state = "airflowDagRun" in facets or "airflowState" in facets
        task_facet, dag_facet = self._object(facets, "airflow"), self._object(facets, "airflowDagRun")
        nominal = self._object(facets, "nominalTime")
        parent = self._run_ref(facets.get("parent"), "run.facets.parent")
        root = self._run_ref(self._object(facets, "parent").get("root"), "run.facets.parent.root")
        before, after = neighbours(facts.node, task_facet)
        depends = self._object(facets, "jobDependencies")
        return RunEvent(
            at=at,
            type=kind,
            run_id=run_id,
            job=facts.model_copy(
                update={
                    "job_type": facts.job_type or ("DAG" if state and parent is None else None),
                    "owners": facts.owners or airflow_owners(task_facet or dag_facet),
                }
            ),
            inputs=self._datasets(raw, "inputs"),
            outputs=self._datasets(raw, "outputs"),
            parent=parent if parent is None or parent.job != facts.node or parent.run_id != run_id else None,
            root=root,
            nominal_start=self._time(nominal, "run.facets.nominalTime", "nominalStartTime"),
            nominal_end=self._time(nominal, "run.facets.nominalTime", "nominalEndTime"),
            error=run_error(self._object(facets, "errorMessage")) or self._fallback(kind, facets, raw),
            facts=run_facts(raw, facts.code),
            airflow=airflow(task_facet or dag_facet),
            before=_unique(before + self._dependencies(depends, "upstream"), facts.node),
            after=_unique(after + self._dependencies(depends, "downstream"), facts.node),
            ignored=tuple(self.ignored),
        )

    def _fallback(self, kind: EventType, facets: Mapping[str, Any], raw: Mapping[str, Any]) -> RunError | None:
        return fallback_error(facets, raw.get("inputs")) if kind is EventType.FAIL else None

    def _event_type(self, raw: Mapping[str, Any]) -> EventType | None:
        match raw.get("eventType"):
            case None:
                return EventType.OTHER
            case str(said):
                known = said.strip().upper()
                return EventType(known) if known in EventType.__members__ else EventType.OTHER
            case _:
                self._refuse("eventType", "is not a string")
                return None

    def _required_time(self, raw: Mapping[str, Any]) -> datetime | None:
        value = raw.get("eventTime")
        if not isinstance(value, str) or not value.strip():
            self._refuse("eventTime", "is missing" if value is None or value == "" else "is not a time in RFC 3339")
            return None
        try:
            return parse_time(value)
        except ValueError:
            self._refuse("eventTime", "is not a time in RFC 3339")
            return None

    def _job(self, raw: Mapping[str, Any]) -> JobFacts | None:
        job = raw.get("job")
        node = self._node(job, "job", NodeKind.JOB, self.problems)
        if node is None or not isinstance(job, Mapping):
            return None
        if node.namespace == OWN_NAMESPACE:
            self._refuse("job.namespace", "is reserved for the lineage of Counterpoint's own tasks")
            return None
        facets = self._facets(job, "job.facets")
        return JobFacts(
            node=node,
            job_type=text(self._object(facets, "jobType"), "jobType"),
            integration=text(self._object(facets, "jobType"), "integration"),
            owners=owners(self._object(facets, "ownership")),
            code=code_location(self._object(facets, "sourceCodeLocation")),
        )

    def _datasets(self, raw: Mapping[str, Any], field: str) -> tuple[DatasetUse, ...]:
        listed = raw.get(field)
        if listed is None:
            return ()
        if not isinstance(listed, list):
            self.ignored.append(Problem(field=field, problem="is not a list"))
            return ()
        uses = (self._dataset(value, f"{field}[{at}]", self.ignored) for at, value in enumerate(listed))
        return tuple({use.node: use for use in uses if use is not None}.values())

    def _dataset(self, value: object, field: str, found: list[Problem]) -> DatasetUse | None:
        node = self._node(value, field, NodeKind.DATASET, found)
        if node is None or not isinstance(value, Mapping):
            return None
        facets = self._facets(value, f"{field}.facets")
        return DatasetUse(node=node, owners=owners(self._object(facets, "ownership")))

    def _dependencies(self, facet: Mapping[str, Any], field: str) -> tuple[Node, ...]:
        listed = facet.get(field)
        if not isinstance(listed, list):
            return ()
        path = f"run.facets.jobDependencies.{field}"
        jobs = (
            self._node(entry.get("job") if isinstance(entry, Mapping) else entry, f"{path}[{at}].job", NodeKind.JOB)
            for at, entry in enumerate(listed)
        )
        return tuple(job for job in jobs if job is not None)

    def _run_ref(self, facet: object, field: str) -> RunRef | None:
        if facet is None:
            return None
        if not isinstance(facet, Mapping):
            self.ignored.append(Problem(field=field, problem="is not an object"))
            return None
        job = self._node(facet.get("job"), f"{field}.job", NodeKind.JOB)
        run = facet.get("run")
        run_id = self._name(
            run if isinstance(run, Mapping) else {}, f"{field}.run", "runId", self.ignored, RUN_ID_LIMIT_CHARS
        )
        return RunRef(job=job, run_id=run_id) if job is not None and run_id is not None else None

    def _node(self, value: object, field: str, kind: NodeKind, found: list[Problem] | None = None) -> Node | None:
        found = self.ignored if found is None else found
        if not isinstance(value, Mapping):
            found.append(Problem(field=field, problem="is missing" if value is None else "is not an object"))
            return None
        namespace = self._name(value, field, "namespace", found)
        name = self._name(value, field, "name", found)
        return Node(kind=kind, namespace=namespace, name=name) if namespace is not None and name is not None else None

    def _name(
        self, value: Mapping[str, Any], field: str, key: str, found: list[Problem], limit_chars: int = NAME_LIMIT_CHARS
    ) -> str | None:
        match value.get(key):
            case None:
                problem = "is missing"
            case str(name) if not name.strip():
                problem = "is empty"
            case str(name) if len(name) > limit_chars:
                problem = f"is longer than {limit_chars} characters"
            case str(name) if not name.isprintable():
                problem = "contains unprintable characters"
            case str(name):
                return name
            case _:
                problem = "is not a string"
        found.append(Problem(field=f"{field}.{key}", problem=problem))
        return None

    def _facets(self, value: Mapping[str, Any], field: str) -> Mapping[str, Any]:
        facets = value.get("facets")
        if facets is not None and not isinstance(facets, Mapping):
            self.ignored.append(Problem(field=field, problem="is not an object"))
        return facets if isinstance(facets, Mapping) else {}

    def _object(self, facets: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        facet = facets.get(name)
        return facet if isinstance(facet, Mapping) else {}

    def _time(self, facet: Mapping[str, Any], field: str, key: str) -> datetime | None:
        value = text(facet, key)
        if value is None:
            return None
        try:
            return parse_time(value)
        except ValueError:
            self.ignored.append(Problem(field=f"{field}.{key}", problem="is not a time in RFC 3339"))
            return None

    def _refuse(self, field: str, problem: str) -> None:
        self.problems.append(Problem(field=field, problem=problem))


def _unique(jobs: tuple[Node, ...], but: Node) -> tuple[Node, ...]:
    return tuple(job for job in dict.fromkeys(jobs) if job != but)

"""Graph records of an event: jobs, runs, datasets and edges, by union over runs (docs/incidents.md)."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar, assert_never

from counterpoint.graph.edges import EdgeKind, LineageEdge, edge
from counterpoint.graph.names import Node, dataset, job
from counterpoint.lineage.openlineage.events import (
    DatasetEvent,
    DatasetUse,
    EventType,
    JobEvent,
    OpenLineageEvent,
    RunEvent,
)
from counterpoint.lineage.records import (
    SET_LIMIT_CHARS,
    DatasetRecord,
    GraphRecord,
    JobRecord,
    RecordKey,
    RunMark,
    RunRecord,
    StampedRecord,
    fact_stamp,
    merge_records,
)
from counterpoint.lineage.sizes import shortest

S = TypeVar("S", bound=StampedRecord)


def records_of_event(event: OpenLineageEvent) -> dict[RecordKey, GraphRecord]:
    """Return the records of one event alone; their keys are read before `changed_records`."""
    match event:
        case RunEvent():
            return _merge(_records_of_run(event))
        case JobEvent():
            return _merge(_records_of_job(event, _stamp(event.at)))
        case DatasetEvent():
            return _merge([_dataset(event.dataset, _stamp(event.at))])


def changed_records(event: OpenLineageEvent, existing: Mapping[RecordKey, GraphRecord]) -> dict[RecordKey, GraphRecord]:
    """Return the records that an event adds or changes; `existing` are the stored records of its keys."""
    changed = {}
    for key, fact in records_of_event(event).items():
        record = merge_records(existing[key], fact) if key in existing else fact
        if record != existing.get(key):
            changed[key] = record
    return changed


def key_of(record: GraphRecord) -> RecordKey:
    """Store and id of a record."""
    match record:
        case JobRecord():
            return "jobs", job(record.namespace, record.name).id
        case DatasetRecord():
            return "datasets", dataset(record.namespace, record.name).id
        case RunRecord():
            return "runs", record.run_id
        case LineageEdge():
            return "edges", record.id
        case _:
            assert_never(record)


def edges_of(records: Mapping[RecordKey, GraphRecord]) -> list[LineageEdge]:
    """Return the edges among records."""
    return [record for record in records.values() if isinstance(record, LineageEdge)]


def owners_by_ref(records: Iterable[GraphRecord]) -> dict[str, tuple[str, ...]]:
    """Return the owners in the records of jobs and datasets, by `Node.ref`."""
    owners = {}
    for record in records:
        match record:
            case JobRecord():
                owners[job(record.namespace, record.name).ref] = record.owners
            case DatasetRecord():
                owners[dataset(record.namespace, record.name).ref] = record.owners
            case _:
                continue
    return owners


def _merge(records: Iterable[GraphRecord]) -> dict[RecordKey, GraphRecord]:
    records_by_key: dict[RecordKey, GraphRecord] = {}
    for record in records:
        key = key_of(record)
        records_by_key[key] = merge_records(records_by_key[key], record) if key in records_by_key else record
    return records_by_key


def _records_of_run(event: RunEvent) -> list[GraphRecord]:
    stamp = _stamp(event.at, event.type)
    node, run_mark = event.job.node, RunMark(run_id=event.run_id, at=event.at)
    records = _records_of_job(event, stamp)
    records.append(_run(event, stamp))
    if event.type in (EventType.COMPLETE, EventType.FAIL):
        field = "last_success" if event.type is EventType.COMPLETE else "last_failure"
        records.append(_stamped(_job(node), stamp, **{field: run_mark}))
    if event.parent is not None and event.parent.job != node:
        records += [_stamped(_job(node), stamp, parent=event.parent.job.ref), _job(event.parent.job)]
        records.append(edge(EdgeKind.PARENT, event.parent.job, node))
        if event.root is not None and event.root.job not in (event.parent.job, node):
            records += [_job(event.root.job), edge(EdgeKind.PARENT, event.root.job, event.parent.job)]
    for other in (*event.before, *event.after):
        sibling_parent = event.parent if event.parent is not None and _is_task_of(other, event.parent.job) else None
        records.append(_stamped(_job(other), "0", parent=sibling_parent.job.ref if sibling_parent else None))
        if sibling_parent is not None:
            records.append(edge(EdgeKind.PARENT, sibling_parent.job, other))
    records += [edge(EdgeKind.CONTROL, other, node) for other in event.before]
    records += [edge(EdgeKind.CONTROL, node, other) for other in event.after]
    return records


def _records_of_job(event: JobEvent, stamp: str) -> list[GraphRecord]:
    job_facts = event.job
    records: list[GraphRecord] = [
        _stamped(
            _job(job_facts.node), stamp, job_type=job_facts.job_type, owners=job_facts.owners, code=job_facts.code
        ),
        *(_dataset(use, stamp) for use in (*event.inputs, *event.outputs)),
    ]
    records += [edge(EdgeKind.DATA, use.node, job_facts.node) for use in event.inputs]
    records += [edge(EdgeKind.DATA, job_facts.node, use.node) for use in event.outputs]
    return records


def _run(event: RunEvent, stamp: str) -> RunRecord:
    run = RunRecord(
        run_id=event.run_id,
        job=event.job.node.ref,
        state=event.type if event.type.ends else EventType.RUNNING,
        inputs=shortest((use.node.ref for use in event.inputs), SET_LIMIT_CHARS),
        outputs=shortest((use.node.ref for use in event.outputs), SET_LIMIT_CHARS),
    )
    stamped = _stamped(
        run,
        stamp,
        job=run.job,
        started_at=event.at if event.type is EventType.START else None,
        ended_at=event.at if event.type.ends else None,
        ended_as=event.type if event.type.ends else None,
        parent=event.parent.job.ref if event.parent else None,
        parent_run_id=event.parent.run_id if event.parent else None,
        root=event.root.job.ref if event.root else None,
        root_run_id=event.root.run_id if event.root else None,
        nominal_start=event.nominal_start,
        nominal_end=event.nominal_end,
        error_message=event.error.headline if event.error and event.type is EventType.FAIL else None,
        stack_trace=event.error.stack_trace if event.error and event.type is EventType.FAIL else None,
        integration=event.job.integration,
        whole=event.is_whole or None,
        dag_run_id=event.airflow.dag_run_id,
        try_number=event.airflow.try_number,
        retries=event.airflow.retries,
        map_index=event.airflow.map_index,
        log_url=event.airflow.log_url,
    )
    stamps = stamped.stamps | {fact_stamp(name): stamp for name in event.facts}
    return stamped.model_copy(update={"facts": dict(event.facts), "stamps": stamps})


def _stamped(record: S, stamp: str, **reported: Any) -> S:
    """Return the record with these values and their stamps; None and empty values are left out."""
    values = {field: value for field, value in reported.items() if value is not None and value != ()}
    return record.model_copy(update={**values, "stamps": dict.fromkeys(values, stamp)})


def _stamp(at: datetime, kind: EventType = EventType.OTHER) -> str:
    return f"{at.year:04}-{at:%m-%dT%H:%M:%S.%fZ} {_ORDER[kind]}"


_ORDER = {kind: rank for rank, kind in enumerate(("START", "RUNNING", "OTHER", "ABORT", "FAIL", "COMPLETE"))}


def _job(node: Node) -> JobRecord:
    return JobRecord(namespace=node.namespace, name=node.name)


def _dataset(use: DatasetUse, stamp: str) -> DatasetRecord:
    return _stamped(DatasetRecord(namespace=use.node.namespace, name=use.node.name), stamp, owners=use.owners)


def _is_task_of(node: Node, dag: Node) -> bool:
    return node.namespace == dag.namespace and node.name.startswith(f"{dag.name}.")

#!/usr/bin/env python3
"""Check the rows of Counterpoint's database against its audit log: this file and Python's standard library are enough.

    verify_records.py LEAVES.jsonl PROJECT TABLE=ROWS.jsonl ...

LEAVES.jsonl is what `verify_log.py` said yes to. The rows are those of one project, one JSON object a line, straight
from PostgreSQL: `psql -AtXc "SELECT row_to_json(t) FROM records t WHERE project = 'PROJECT'"`, likewise of history,
messages, inbox, read_sets, sources and audit. Says yes, or no and what differs; the exit code is 0 or 1. It
wants a log whose leaves all say where their rows stand (`placed`); rows of commits that were erased are not looked at.
The commits that `sources` names are those whose read sets an earlier release may have deleted.
"""

import base64
import datetime
import hashlib
import io
import itertools
import json
import re
import struct
import sys
import uuid
import zlib

START = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
SHARED = {
    1: (
        b',"done"],"cancels":["]]},"erased":{"principal":"person","redacted":[["read_set":[null,"\x03","\x03"],'
        b'[[null,"memory",0,1,1,false,true"step":"mentions","task":null,"tasks":[],"writes":[["documents","chunks","plans'
        b'"approvals","attempts","timers","spend","model_calls","checkpoints","calibration","judge_memory","planner_memory'
        b'"coder_memory","webhook_deliveries","principals","runs","datasets","entities","\x02","relationships","\x02'
        b'"incidents","sessions","edges","data-\x02",1,"\x03",0],["jobs","counterpoint/\x01",1,"\x03",0]]}'
        b'","counterpoint.decision.made.v1","\x03","counterpoint.approval.requested.v1","counterpoint.task.due.v1"'
        b',"counterpoint.task.overridden.v1","counterpoint.outcome.reported.v1","counterpoint.task.failed.v1"'
        b',"counterpoint.task.proposed.v1","counterpoint.task.escalated.v1","counterpoint.task.completed.v1"'
        b',"counterpoint.records.changed.v1","counterpoint.task.resumed.v1","counterpoint.task.submitted.v1"'
        b',"counterpoint.task.routed.v1","counterpoint.task.delegated.v1","counterpoint.task.worked.v1"'
        b'"at":"2026-11-27T00:00:00.000000+00:00","commit":"\x01","inbox":[true,1,"done"],"message":"\x01","messages":['
        b'["\x01","counterpoint.decision.made.v1",0,1],["\x01","counterpoint.decision.made.v1",1,1]],'
        b'"principal":null,"project":"default","read_set":["\x01","\x03","\x03"],"service":"lineage","service":"router",'
        b'"service":"manager","service":"developer","stamps":[[0,"coder","judge",2,2,1],[0,"developer",1,1,1],'
        b'[0,"tasks..completed",["router"],1,1,null,null,false,true],[0,"changes..manager",["lineage"],'
        b'[0,"decisions..developer",[],1,1,null,null,false,false]],"step":"done","task":"\x01","tasks":["\x01"],"writes":['
        b'["submissions","task:\x01",1,"\x03",0],["submissions","request:\x02\x02",1,"\x03",0],["tasks","\x01",1,"\x03",0],'
        b'["decisions","\x01",1,"\x03",0],["decisions","\x01",1,"\x03",0],["actions","\x01",1,"\x03",0],'
        b'["actions","\x01",1,"\x03",0]]}'
    ),
    2: (
        b'"graph","walk","episodic","cache","indexed","related","hybrid","aggregate","audit","as of",true,"next",'
        b'[["vector","exact",false,null,true,[["lexical","dense","cosine","lexical_z","cosine_z","rarest","coverage",'
        b'"by_words","by_meaning","by_name","by_fullness","by_exact_form"]],[[10,0.6,[0,0.0,0.26,0.26,0.0,3.4,5.8,0.0,0.0,'
        b"0.6,0.0,0.0,0.0]],[1,0.5,[0,0.0,0.2,0.2,0.0,2.8,0.0,0.0,0.5,0.0,0.0,0.0]]]],"
        b'["\x02\x02","record","list",false,null,true,[],[[0],[1],[2],[3],[4],[5],[6],[7],[8],[9]]],'
        b'["\x02\x02","record","list",false,null,true,[],[]]],'
        b'[[["\x02\x02","record","primary key",false,null,true,[],[[2]]],'
        b'["\x02\x02","record","primary key",false,null,true,[],[]]]]'
    ),
}
"""Texts that packed leaves (1) and packed answers (2) share."""


def time(text):
    """Whole microseconds since 1970."""
    if text is None:
        return None
    return (datetime.datetime.fromisoformat(text) - START) // datetime.timedelta(microseconds=1)


def digest(value):
    """The hash of a JSON value, whose keys are sorted and which has no spaces."""
    return hashlib.sha256(
        json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    ).hexdigest()


def expanded(said):
    """A leaf with what it lists once, `tasks` and `stamps`, in each row, and with its hashes in hex."""
    if "stamps" not in said:
        return said
    stamps = [[None if task is None else said["tasks"][task], *others] for task, *others in said["stamps"]]
    writes = [[*key, in_hex(sha256), stamps[index]] for *key, sha256, index in said["writes"]]
    sent = []
    for message, kind, sha256, index in said["messages"]:
        sha256 = writes[sha256][3] if isinstance(sha256, int) else in_hex(sha256)
        sent.append([message, kind, sha256, stamps[index]])
    read_set = said["read_set"] and [said["read_set"][0], *map(in_hex, said["read_set"][1:])]
    inbox = [*said["inbox"], digest({"status": said["inbox"][2]})]
    return {**said, "writes": writes, "messages": sent, "read_set": read_set, "inbox": inbox}


def in_hex(sha256):
    """A hash in hex."""
    return base64.urlsafe_b64decode(sha256 + "=").hex()


def separate(records):
    """The records, with the decisions that are stored in the rows of actions in rows of their own."""
    for row in records:
        yield row
        own = [row[name] for name in ("decision_id", "decision_seq", "decision_sha256", "decision")]
        if own != [None] * 4:
            body = {name: row["body"][name] for name in ("agent", "task_id", "decision_id", "sources", "reasoning")}
            body |= {"made_at": row["body"]["at"], "decision": row["body"].get("result"), "project": row["project"]}
            body |= {"decision_type": row["body"]["kind"], **row["decision"]}
            yield {**row, "store": "decisions", "id": own[0], "seq": own[1], "sha256": own[2], "body": body}


def logged(messages):
    """The messages, with those of decisions that are stored in the rows of others in rows of their own."""
    for row in messages:
        yield row
        own = [row[f"decision_{name}"] or [] for name in ("ids", "seqs", "records", "subjects")]
        for message, seq, record, subject in itertools.zip_longest(*own):
            fixed = {"type": "counterpoint.decision.made.v1", "audience": [], "parts": None, "structured": False}
            empty = {"timer": None, "due_at": None, "task_version": None}
            yield {**row, **fixed, **empty, "id": message, "seq": seq, "records": [record], "subject": subject}


def body_of(message, written):
    """The body of a message. What it repeats of `written` records, by commit and position, is stored in these alone."""
    if message["records"] is None and message["parts"] is None:
        return message["body"]
    bodies = [written[message["commit_id"], seq] for seq in message["records"]]
    if message["parts"] is None:
        (body,) = bodies
    else:
        body = {name: bodies[place][field] for name, place, field in json.loads(message["parts"])}
        body |= json.loads(message["body"])
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def unpacked(packed):
    """A packed text: the number of the text that it shares, an outline with marks in place of ids and hashes, and these
    in binary. Empty for what is none."""
    stream = zlib.decompressobj(-12, SHARED[packed[0]])
    text, _, uuids = stream.decompress(packed[1:]).partition(b"\0")
    text, rest, out = text.decode(), stream.unused_data, []
    counts = [text.count(mark) for mark in "\1\2\3"]
    if not stream.eof or [len(uuids), len(rest)] != [16 * counts[0], 16 * counts[1] + 32 * counts[2]]:
        return ""
    data = {"\1": io.BytesIO(uuids), "\2": io.BytesIO(rest[: 16 * counts[1]]), "\3": io.BytesIO(rest[16 * counts[1] :])}
    for each in re.split("([\1-\3])", text):
        if each == "\1":
            out.append(str(uuid.UUID(bytes=data[each].read(16))))
        elif each == "\2":
            out.append(data[each].read(16).hex())
        elif each == "\3":
            out.append(base64.urlsafe_b64encode(data[each].read(32)).decode().rstrip("="))
        else:
            out.append(each)
    return "".join(out)


def answers_of(row):
    """The answers of a read set, in a list, empty without any; earlier releases deflated them, or not even that."""
    if row["packed"] is None:
        return [] if row["answers"] is None else [row["answers"].encode()]
    packed = bytes.fromhex(row["packed"][2:])
    if row["answers"] is not None:
        return [b""]
    if packed[:1] != b"\x78":
        return [unpacked(packed).encode()]
    stream = zlib.decompressobj()
    text = stream.decompress(packed)
    return [text if stream.eof and not stream.unused_data else b""]


def leaf_of(row):
    """The body of a leaf as it was hashed, None if it was erased."""
    if row["packed"] is None:
        return row["body"]
    packed = bytes.fromhex(row["packed"][2:])
    records, messages, at = struct.unpack_from(">qqq", packed)
    rest = unpacked(packed[24:])
    return "" if row["body"] is not None or not rest else f'{{"placed":[{records},{messages},{at}],{rest[1:]}'


def said_by(leaves, project):
    """Return the contents of a project's leaves: rows by table and key, erasures, and cancelled timers."""
    rows = {table: {} for table in ("versions", "messages", "inbox", "read_sets", "audit")}
    erased, cancelled, gone, tasks = set(), set(), {}, {}
    for leaf in leaves:
        said = expanded(json.loads(leaf.get("body") or "{}"))
        if said.get("project") != project:
            continue
        (records, messages, at), commit = said["placed"], said.get("commit") or said["refusal"]
        writes, sent = said.get("writes", []), said.get("messages", [])
        rows["audit"][leaf["index"] + 1] = [commit, at, records + len(writes), "commit" in said, said["task"], leaf]
        forgets = said.get("erased") or {}
        erased.update(forgets.get("leaves", []))
        gone.update({(write[0], write[1]): write[2] for write in writes if forgets})
        for number, (store, record, version, sha256, stamps) in enumerate(writes, records + 1):
            place = [stamps[5], number, stamps[6]] if len(stamps) > 5 else [number, None, at]
            rows["versions"][store, record, version] = [commit, sha256, stamps[:5], place, number]
            if store == "tasks":
                tasks.setdefault(record, []).append((number, version))
        for store, record, version, sha256, stamps, place in forgets.get("kept", []):
            rows["versions"][store, record, version] = [None, sha256, stamps, place, place[1] or place[0]]
        for seq, (message, kind, sha256, stamps) in enumerate(sent, messages + 1):
            version = max((v for n, v in tasks.get(stamps[0], []) if n < seq), default=0) if stamps[8] else None
            row = [kind, sha256, *stamps[:8], seq, said["service"], said["message"], commit, at, version]
            rows["messages"][message] = row
        cancelled.update((said["service"], timer) for timer in said.get("cancels", []))
        if "inbox" in said:
            rows["inbox"][said["service"], said["message"], said["step"]] = [*said["inbox"], at]
        if said.get("read_set"):
            rows["read_sets"][commit] = [*said["read_set"], at]
    return rows, erased, cancelled, gone


def compare(leaves, project, tables):
    """Yield the differences between the tables and the leaves, in words."""
    rows, erased, cancelled, gone = said_by(leaves, project)
    forgotten = {row["id"] for row in tables["audit"] if row["position"] in erased}
    left = {key for key in rows["versions"] if key[2] >= gone.get(key[:2], 0)}
    records = [*separate(tables["records"])]
    for table, versions in (("records", records), ("history", tables["history"])):
        for row in versions:
            key = row["store"], row["id"], row["version"]
            if row["commit_id"] in forgotten and row["body"] is None:
                continue
            known = rows["versions"].get(key)
            body = hashlib.sha256(b"").hexdigest() if row["body"] is None else digest(row["body"])
            stamps = [row[name] for name in ("task_id", "author", "label", "integrity", "schema_version")]
            now = [row["commit_id"], body, stamps, [row["seq"], row["changed"], time(row["at"])]]
            left.discard(key)
            following = rows["versions"].get((*key[:2], key[2] + 1))
            if known is None or [known[0] or row["commit_id"], *known[1:4]] != now or row["sha256"] != f"\\x{body}":
                yield f"{table} {key} is not as it was committed"
            elif (row["erased"] and key[:2] not in gone) or (table == "history" and following is None):
                yield f"{table} {key} is erased, or superseded, by nothing"
            elif (table == "records") != (following is None) or (following and row["superseded"] != following[4]):
                yield f"{table} {key} is not the version that it says"
    yield from (f"{key} is gone" for key in left)
    written = {(row["commit_id"], row["seq"]): row["body"] for row in (*records, *tables["history"])}
    timers = {}
    for row in logged(tables["messages"]):
        if row["timer"] is not None and (row["sender"], row["timer"]) in cancelled:
            timers[row["id"]] = row["audience"]
        now = [row["type"], hashlib.sha256(body_of(row, written).encode()).hexdigest()]
        now += [row[name] for name in ("task_id", "subject", "audience", "label", "integrity", "timer")]
        now += [time(row["due_at"]), row["structured"], row["seq"], row["sender"], row["inbound_id"], row["commit_id"]]
        now += [time(row["at"]), row["task_version"]]
        if rows["messages"].get(row["id"]) != now and row["commit_id"] not in forgotten:
            yield f"message {row['id']} is not as it was sent"
    for row in tables["inbox"]:
        key, now = (row["consumer"], row["message_id"], row["step"]), [row["last"], row["fence"], row["outcome"]]
        known = rows["inbox"].get(key)
        if key[2] == "cancelled" and key[0] in timers.get(key[1], ()):
            known = [True, 0, "cancelled", digest({"status": "stale"}), time(row["at"])]
        if known != [*now, digest(row["reply"]), time(row["at"])] and not (known is None and erased):
            yield f"inbox {key} is not as it was applied"
    for row in tables["read_sets"]:
        answers = [hashlib.sha256(text).hexdigest() for text in answers_of(row)]
        now = [row["cause"], digest(row["reads"]), *answers, time(row["at"])]
        if rows["read_sets"].get(row["commit_id"]) != now and row["commit_id"] not in forgotten:
            yield f"the read set of {row['commit_id']} is not as it was kept"
    there = {row["commit_id"] for row in (*tables["read_sets"], *tables["sources"])}
    yield from (f"the read set of {commit} is gone" for commit in rows["read_sets"].keys() - there)
    seen = set()
    for row in tables["audit"]:
        seen.add(row["position"])
        known = rows["audit"].get(row["position"])
        if row["position"] in erased:
            continue
        now = [row["id"], time(row["at"]), row["seq"], row["kind"] == "commit", row["task_id"]]
        if known is None or known[:5] != now or row["chain"] is not None:
            yield f"leaf {row['position']} is filed as what it is not"
        elif [(row[name] or "")[2:] for name in ("salt", "previous", "leaf")] != [
            known[5].get(name) or "" for name in ("salt", "previous", "leaf")
        ] or leaf_of(row) != known[5]["body"]:
            yield f"leaf {row['position']} was changed"
    yield from (f"leaf {position} is gone" for position in rows["audit"].keys() - seen)


def main():
    leaves_file, project, *files = sys.argv[1:]
    names = ("records", "history", "messages", "inbox", "read_sets", "sources", "audit")
    tables = {table: [] for table in names}
    try:
        with open(leaves_file, encoding="utf-8") as file:
            leaves = [json.loads(line) for line in file]
        for each in files:
            table, _, name = each.partition("=")
            with open(name, encoding="utf-8") as file:
                tables[table] = [json.loads(line) for line in file]
        broken = list(compare(leaves, project, tables))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error, zlib.error) as error:
        broken = [f"cannot be read: {error!r}"]
    print(
        f"no: {broken[0]}, and {len(broken) - 1} more" if broken else f"yes: all rows of {project} stand as committed"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

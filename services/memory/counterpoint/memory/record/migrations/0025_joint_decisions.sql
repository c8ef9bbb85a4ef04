-- A decision that an action of the same commit names is stored in the row of that action, as long as both have their first
-- version: `decision` has the fields of its body that do not follow from the action. See `record/joint_decisions.py`.
ALTER TABLE records ADD decision_id text, ADD decision_seq bigint, ADD decision_sha256 bytea, ADD decision jsonb;
CREATE UNIQUE INDEX records_by_decision ON records (project, decision_id) WHERE decision_id IS NOT NULL;
CREATE INDEX records_by_decision_seq ON records (project, decision_seq) WHERE decision_id IS NOT NULL;

CREATE FUNCTION decision_body(p_project text, p_action jsonb, p_decision jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT jsonb_build_object(
        'agent', p_action -> 'agent', 'task_id', p_action -> 'task_id', 'decision_id', p_action -> 'decision_id',
        'sources', p_action -> 'sources', 'reasoning', p_action -> 'reasoning', 'made_at', p_action -> 'at',
        'decision', p_action -> 'result', 'decision_type', p_action -> 'kind', 'project', p_project) || p_decision
$$;

-- The decisions in the rows of actions, each as a record; and all records. A list in the order of `seq` reads `records` and
-- `joint_decisions` by themselves: the planner does not pass an order to the parts of the union.
CREATE VIEW joint_decisions WITH (security_invoker = true) AS
SELECT project, 'decisions'::text AS store, decision_id AS id, 1 AS version, decision_seq AS seq, task_id, author, label,
       integrity, schema_version, decision_body(project, body, decision) AS body, decision_sha256 AS sha256, commit_id, at,
       NULL::timestamptz AS erased, NULL::bigint AS changed
FROM records WHERE store = 'actions' AND decision_id IS NOT NULL;
CREATE VIEW current_records WITH (security_invoker = true) AS
SELECT project, store, id, version, seq, task_id, author, label, integrity, schema_version, body, sha256, commit_id, at,
       erased, changed
FROM records
UNION ALL
SELECT * FROM joint_decisions;
GRANT SELECT ON joint_decisions, current_records TO counterpoint_memory, counterpoint_inspect;

CREATE OR REPLACE FUNCTION repeated_bodies(p_project text, p_commit uuid, p_records bigint[]) RETURNS text
LANGUAGE sql STABLE STRICT AS $$
    SELECT jsonb_agg(body ORDER BY seq)::text FROM (
        SELECT seq, body FROM current_records
        WHERE project = p_project AND commit_id = p_commit AND seq = ANY (p_records)
        UNION ALL
        SELECT seq, body FROM history WHERE project = p_project AND commit_id = p_commit AND seq = ANY (p_records)) AS repeated
$$;

-- The messages of a commit's decisions are stored with its last message: the body of each is that of a record, and its
-- other columns are those of that message. See `_message_rows` in `commit/statement.py`.
ALTER TABLE messages ADD decision_ids uuid[], ADD decision_seqs bigint[], ADD decision_records bigint[],
    ADD decision_subjects text[];

-- The messages in the rows of others; and the whole log. A list in the order of `seq` reads both by themselves.
CREATE VIEW decision_messages WITH (security_invoker = true) AS
SELECT m.project, d.seq, d.id, 'counterpoint.decision.made.v1'::text AS type, d.subject, m.task_id, NULL::int AS task_version,
       '{}'::text[] AS audience, '{}'::text AS body, m.sender, m.label, m.integrity, m.inbound_id, m.commit_id,
       NULL::timestamptz AS due_at, NULL::text AS timer, m.at, m.traceparent, false AS structured,
       ARRAY[d.record] AS records, NULL::text AS parts, m.seq AS place
FROM messages m CROSS JOIN LATERAL unnest(m.decision_ids, m.decision_seqs, m.decision_records, m.decision_subjects)
    AS d (id, seq, record, subject)
WHERE num_nonnulls(m.decision_ids, m.decision_seqs, m.decision_records, m.decision_subjects) > 0;
CREATE VIEW logged_messages WITH (security_invoker = true) AS
SELECT project, seq, id, type, subject, task_id, task_version, audience, body, sender, label, integrity, inbound_id,
       commit_id, due_at, timer, at, traceparent, structured, records, parts
FROM messages
UNION ALL
SELECT project, seq, id, type, subject, task_id, task_version, audience, body, sender, label, integrity, inbound_id,
       commit_id, due_at, timer, at, traceparent, structured, records, parts
FROM decision_messages;
GRANT SELECT ON decision_messages, logged_messages TO counterpoint_memory, counterpoint_inspect;

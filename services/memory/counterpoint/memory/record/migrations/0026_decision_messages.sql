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

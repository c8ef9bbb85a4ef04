-- Statements of the commit path: inbound messages, embeddings, messages on their way to the bus.

-- name: inbound_message
-- With the items that its commit and the causes of that commit have read.
WITH RECURSIVE causes AS (
    SELECT r.project, r.cause, r.reads FROM messages m
    JOIN read_sets r ON r.project = m.project AND r.commit_id = m.commit_id WHERE m.id = $1
    UNION ALL
    SELECT r.project, r.cause, r.reads FROM causes c
    JOIN read_sets r ON r.project = c.project AND r.commit_id = c.cause)
SELECT m.label, m.integrity, m.task_version, m.type, m.commit_id,
       (SELECT jsonb_agg(item) FROM causes, jsonb_array_elements(causes.reads) AS item) AS reads,
       a.body AS leaf, a.packed
FROM messages m
LEFT JOIN audit a ON a.project = m.project AND a.id = m.commit_id
WHERE m.id = $1

-- name: messages_to
SELECT id::text, task_id, label, integrity FROM messages WHERE project = $1 AND $2 = ANY (audience) AND id = ANY ($3)

-- name: reply_to_step
SELECT i.reply, a.body AS leaf, a.packed FROM inbox i LEFT JOIN audit a ON a.project = i.project AND a.id = $4
WHERE i.consumer = $1 AND i.message_id = $2 AND i.step = $3

-- name: has_task_ended
SELECT CASE WHEN body IS NOT NULL THEN body ->> 'state' = ANY ($3)
            ELSE NOT EXISTS (SELECT FROM records WHERE project = $1 AND store = 'submissions' AND id = 'task:' || $2
                             AND body IS NOT NULL) END
FROM records WHERE project = $1 AND store = 'tasks' AND id = $2

-- name: recorded_task
SELECT body ->> 'state' AS state, label, coalesce(body -> 'budget' ->> 'usd', body -> 'budget' ->> 'tokens') IS NOT NULL
       AS has_budget
FROM records WHERE project = $1 AND store = 'tasks' AND id = $2 AND body IS NOT NULL

-- name: stamps_of_records
SELECT r.store, r.id, r.task_id, r.label, r.integrity FROM unnest($2::text[], $3::text[]) AS w(store, id)
CROSS JOIN LATERAL (
    SELECT * FROM current_records WHERE project = $1 AND store = w.store AND id = w.id LIMIT 1) AS r

-- name: known_embeddings
SELECT sha256, embedding FROM embeddings WHERE project = $1 AND model = $2 AND sha256 = ANY ($3)

-- name: add_embeddings
-- In one order: concurrent transactions with the same texts would otherwise deadlock.
INSERT INTO embeddings (project, model, sha256, embedding)
SELECT $1, $2, sha256, embedding::vector FROM unnest($3::bytea[], $4::text[]) AS new(sha256, embedding)
ORDER BY sha256
ON CONFLICT DO NOTHING

-- name: messages_by_id
SELECT project, seq, id, type, subject, task_id, task_version, audience, body, sender, label, integrity,
       inbound_id, due_at, traceparent, structured, records, parts,
       repeated_bodies(project, commit_id, records) AS repeated
FROM messages WHERE id = ANY ($1)

-- name: clear_pending
-- And store how far each stream has come. Lost by a crash, it is only repeated, so it need not wait for the disk.
WITH lazily AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
progress AS (
    INSERT INTO streams (name, life, last_seq)
    SELECT name, life, last_seq FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS reached(name, life, last_seq)
    ON CONFLICT (name) DO UPDATE SET life = excluded.life, last_seq = CASE
        WHEN streams.life = excluded.life THEN greatest(streams.last_seq, excluded.last_seq) ELSE excluded.last_seq END)
DELETE FROM pending USING lazily WHERE message_id = ANY ($1)

-- name: count_pending
-- All, and those that are to be on the bus by now; timers of the future are none of these, refused messages are.
SELECT count(*) AS pending, count(*) FILTER (WHERE due_at <= now() + $1) AS due
FROM (SELECT due_at FROM pending ORDER BY due_at LIMIT 100000) AS counted

-- name: postpone_pending
UPDATE pending SET timer = true, due_at = now() + $2 WHERE message_id = ANY ($1)

-- Statements of operator commands: take-back, erasure, re-embedding.

-- name: take_backs_since
SELECT id, version, body, seq FROM records
WHERE project = $1 AND store = 'quarantines' AND body IS NOT NULL AND at > $2 ORDER BY seq

-- name: take_back
SELECT id, version, body, seq FROM records
WHERE project = $1 AND store = 'quarantines' AND id = $2 AND body IS NOT NULL

-- name: latest_approval_of_act
SELECT version, body FROM records
WHERE project = $1 AND store = 'approvals' AND body ->> 'act' = $2 AND author = ANY($3) ORDER BY seq DESC LIMIT 1

-- name: approvals_of_acts
SELECT id FROM records WHERE project = $1 AND store = 'approvals' AND body ->> 'act' IS NOT NULL AND author = ANY($2)

-- name: current_versions
SELECT found.* FROM unnest($2::text[], $3::text[]) AS given (store, id)
CROSS JOIN LATERAL (
    SELECT store, id, version, body IS NOT NULL AS has_body FROM current_records
    WHERE project = $1 AND store = given.store AND id = given.id LIMIT 1) AS found

-- name: all_versions
-- Every version of some records; `by_take_back`: a take-back or its lifting wrote it.
SELECT found.*, found.commit_id IN (
    SELECT commit_id FROM records WHERE project = $1 AND store = 'quarantines'
    UNION SELECT commit_id FROM history WHERE project = $1 AND store = 'quarantines') AS by_take_back
FROM unnest($2::text[], $3::text[]) AS given (store, id)
CROSS JOIN LATERAL (
    SELECT store, id, version, seq, body IS NOT NULL AS has_body, sha256, commit_id FROM current_records
    WHERE project = $1 AND store = given.store AND id = given.id
    UNION ALL
    SELECT store, id, version, seq, body IS NOT NULL, sha256, commit_id FROM history
    WHERE project = $1 AND store = given.store AND id = given.id OFFSET 0) AS found
ORDER BY found.store, found.id, found.version

-- name: past_versions
SELECT found.* FROM unnest($2::text[], $3::text[], $4::int[]) AS given (store, id, version)
CROSS JOIN LATERAL (
    SELECT store, id, version, task_id, author, label, integrity, schema_version, body, seq, at FROM history
    WHERE project = $1 AND store = given.store AND id = given.id AND version = given.version LIMIT 1) AS found

-- name: moved_records
-- Records that some take-backs removed or restored.
SELECT store, id FROM records WHERE project = $1 AND store <> 'quarantines' AND commit_id IN (
    SELECT commit_id FROM records WHERE project = $1 AND store = 'quarantines' AND id = ANY ($2) AND version = 1
    UNION SELECT commit_id FROM history WHERE project = $1 AND store = 'quarantines' AND id = ANY ($2) AND version = 1)
UNION SELECT store, id FROM history WHERE project = $1 AND store <> 'quarantines' AND commit_id IN (
    SELECT commit_id FROM records WHERE project = $1 AND store = 'quarantines' AND id = ANY ($2) AND version = 1
    UNION SELECT commit_id FROM history WHERE project = $1 AND store = 'quarantines' AND id = ANY ($2) AND version = 1)

-- name: restored_versions
-- Versions that take-backs in force, except those in $3, have restored after a position.
SELECT store, id, version FROM records
WHERE project = $1 AND body IS NOT NULL AND store <> 'quarantines' AND greatest(seq, changed) > $2
    AND commit_id IN (
        SELECT first.commit_id FROM records AS now CROSS JOIN LATERAL (
            SELECT commit_id FROM records WHERE project = $1 AND store = 'quarantines' AND id = now.id AND version = 1
            UNION ALL
            SELECT commit_id FROM history WHERE project = $1 AND store = 'quarantines' AND id = now.id AND version = 1
        ) AS first
        WHERE now.project = $1 AND now.store = 'quarantines' AND now.body IS NOT NULL
            AND NOT now.body @> '{"lifted": true}' AND now.id <> ALL ($3::text[]))
UNION ALL
SELECT store, id, version FROM history
WHERE project = $1 AND body IS NOT NULL AND store <> 'quarantines' AND greatest(seq, changed) > $2
    AND commit_id IN (
        SELECT first.commit_id FROM records AS now CROSS JOIN LATERAL (
            SELECT commit_id FROM records WHERE project = $1 AND store = 'quarantines' AND id = now.id AND version = 1
            UNION ALL
            SELECT commit_id FROM history WHERE project = $1 AND store = 'quarantines' AND id = now.id AND version = 1
        ) AS first
        WHERE now.project = $1 AND now.store = 'quarantines' AND now.body IS NOT NULL
            AND NOT now.body @> '{"lifted": true}' AND now.id <> ALL ($3::text[]))

-- name: records_of_project
SELECT store, id FROM current_records WHERE project = $1 AND (body IS NOT NULL OR erased IS NULL)

-- name: records_of_tasks
SELECT store, id FROM current_records WHERE project = $1 AND (task_id = ANY ($2) OR (store = 'tasks' AND id = ANY ($2)))
UNION SELECT store, id FROM history WHERE project = $1 AND (task_id = ANY ($2) OR (store = 'tasks' AND id = ANY ($2)))

-- name: records_with_error_of_task
-- An incident has the id of its task, its failed runs name it, and a link names two tasks.
WITH versions AS (
    SELECT store, id, body FROM records WHERE project = $1 AND store IN ('incidents', 'runs', 'links')
    UNION ALL SELECT store, id, body FROM history WHERE project = $1 AND store IN ('incidents', 'runs', 'links'))
SELECT DISTINCT store, id FROM versions
WHERE (store = 'incidents' AND id = $2) OR (store = 'runs' AND body ->> 'incident' = $2)
    OR (store = 'links' AND $2 IN (body #>> '{pair,0,task_id}', body #>> '{pair,1,task_id}'))

-- name: entities_of_relationships_alone
-- Entities that no other relationships than these lead to.
SELECT DISTINCT split_part(r.body ->> 'target', '/', 2) AS id FROM records r
WHERE r.project = $1 AND r.store = 'relationships' AND r.id = ANY ($2) AND starts_with(r.body ->> 'target', 'entities/')
    AND NOT EXISTS (
        SELECT FROM records o
        WHERE o.project = $1 AND o.store = 'relationships' AND o.by_target = left(r.body ->> 'target', 200)
            AND o.body ->> 'target' = r.body ->> 'target' AND o.id <> ALL ($2))

-- name: calls_about_documents
-- Model calls that extracted relations from some documents: their responses quote these.
SELECT id FROM records WHERE project = $1 AND store = 'model_calls'
    AND starts_with(body ->> 'key', 'relations:') AND split_part(body ->> 'key', ':', 2) = ANY ($2)

-- name: documents_of_source
SELECT id FROM records WHERE project = $1 AND store = 'documents' AND body ->> 'source' = $2
UNION SELECT id FROM history WHERE project = $1 AND store = 'documents' AND body ->> 'source' = $2

-- name: records_older_than
SELECT store, id, version FROM (
    (SELECT store, id, version, seq FROM records
     WHERE project = $1 AND store = $2 AND at < $3 AND body IS NOT NULL ORDER BY seq LIMIT $4)
    UNION ALL
    (SELECT store, id, version, seq FROM joint_decisions
     WHERE project = $1 AND store = $2 AND at < $3 ORDER BY seq LIMIT $4)) AS older
ORDER BY seq LIMIT $4

-- name: commits_of_records
SELECT given.store, given.id, found.version, found.commit_id, found.now
FROM unnest($2::text[], $3::text[]) AS given (store, id)
CROSS JOIN LATERAL (
    SELECT version, commit_id, true AS now FROM current_records WHERE project = $1 AND store = given.store AND id = given.id
    UNION ALL
    SELECT version, commit_id, false FROM history WHERE project = $1 AND store = given.store AND id = given.id
    OFFSET 0) AS found

-- name: leaves_of_commits
SELECT position, body, packed FROM audit
WHERE project = $1 AND salt IS NOT NULL
  AND (id = ANY ($2::uuid[]) OR task_id = ANY ($3::text[])
       OR id = ANY (ARRAY(SELECT commit_id FROM messages WHERE project = $1 AND task_id = ANY ($3::text[]))))

-- name: unfinished_erasures
SELECT id, version, commit_id, body FROM records
WHERE project = $1 AND store = 'erasures' AND body ->> 'state' = 'erasing'

-- name: missing_vectors
-- Current rows without a vector of a model.
SELECT v.row, v.store, v.id, v.version, v.label, r.schema_version, r.body FROM vectors v
CROSS JOIN LATERAL (
    SELECT schema_version, body FROM records
    WHERE project = $1 AND store = v.store AND id = v.id AND version = v.version AND body IS NOT NULL LIMIT 1) AS r
WHERE v.project = $1 AND v.row > $3
    AND NOT EXISTS (SELECT FROM meanings m WHERE m.row = v.row AND m.model = $2 AND m.version = v.version)
ORDER BY v.row LIMIT $4

-- name: add_vectors
-- A row that a commit is writing is left to that commit; a version that is no longer current gets no vector.
INSERT INTO meanings (row, model, project, store, version, label, embedding, refused)
SELECT v.row, $2, v.project, v.store, v.version, v.label, made.embedding::vector, made.refused
FROM unnest($3::bigint[], $4::int[], $5::text[], $6::text[]) AS made (row, version, embedding, refused)
CROSS JOIN LATERAL (
    SELECT * FROM vectors WHERE row = made.row AND project = $1 AND version = made.version
    FOR SHARE SKIP LOCKED) AS v
ON CONFLICT (row, model) DO NOTHING

-- name: embedding_progress
SELECT (SELECT coalesce(sum(rows), 0)::bigint FROM corpora WHERE project = $1) AS rows,
    (SELECT count(*) FROM meanings WHERE project = $1 AND model = $2) AS vectors,
    (SELECT count(*) FROM meanings WHERE project = $1 AND model = $2 AND refused IS NOT NULL) AS refused,
    EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass($3) AND indisvalid) AS indexed

-- name: refused_vectors
SELECT v.store, v.id, m.refused AS reason FROM meanings m JOIN vectors v ON v.row = m.row AND v.project = $1
WHERE m.project = $1 AND m.model = $2 AND m.refused IS NOT NULL ORDER BY m.row LIMIT $3

-- name: delete_vectors_of_unused_models
DELETE FROM meanings WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM meanings
    WHERE project = $1 AND model NOT IN (SELECT unnest(ARRAY[active, coalesce(other, active)]) FROM models) LIMIT $2))

-- name: delete_embeddings_of_unused_models
DELETE FROM embeddings
WHERE project = $1 AND model NOT IN (SELECT unnest(ARRAY[active, coalesce(other, active)]) FROM models)

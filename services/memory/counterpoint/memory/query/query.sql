-- Statements of queries.

-- name: records_by_ids
SELECT project, store, id, version, seq, author, label, integrity, schema_version, body, at
FROM records WHERE store = $1 AND id = ANY ($2) AND body IS NOT NULL

-- name: line_of_task
SELECT project, store, id, version, seq, author, label, integrity, schema_version, body, at FROM records
WHERE project = $1 AND store = 'actions' AND task_id = $2 AND body IS NOT NULL ORDER BY seq

-- name: newest_commits
-- The commit that last changed each of some stores, by project and store.
SELECT (SELECT newest.commit_id FROM (
            (SELECT commit_id::text, seq AS place FROM records
             WHERE project = place.project AND store = place.store AND (changed IS NULL OR changed <= seq)
             ORDER BY seq DESC LIMIT 1)
            UNION ALL
            (SELECT commit_id::text, seq FROM joint_decisions
             WHERE project = place.project AND store = place.store ORDER BY seq DESC LIMIT 1)
            UNION ALL
            (SELECT commit_id::text, changed FROM records
             WHERE project = place.project AND store = place.store AND changed > seq
             ORDER BY changed DESC LIMIT 1)) AS newest ORDER BY newest.place DESC LIMIT 1) AS commit_id
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS place (project, store, n) ORDER BY n

-- name: database_identity
-- Changes when the database was restored or its table of records was recreated.
SELECT concat_ws(' ', pg_postmaster_start_time(), 'records'::regclass::oid, pg_relation_filenode('records'))

-- name: log_after
-- Decisions are in rows with a higher position: the first rows with decisions have the first of these.
SELECT *, repeated_bodies(project, commit_id, records) AS repeated FROM (
    (SELECT project, commit_id, seq, id, type, subject, task_id, body, sender, at, records, parts FROM messages
     WHERE project = $1 AND seq > $2 AND split_part(subject, '.', 1) = ANY ($3) AND ($4::text IS NULL OR task_id = $4)
         AND (body <> '{}' OR records IS NOT NULL)
     ORDER BY seq LIMIT $5)
    UNION ALL
    (SELECT project, commit_id, seq, id, type, subject, task_id, body, sender, at, records, parts FROM decision_messages
     WHERE project = $1 AND place > $2 AND seq > $2 AND 'decisions' = ANY ($3) AND ($4::text IS NULL OR task_id = $4)
     ORDER BY place, seq LIMIT $5)) AS logged
ORDER BY seq LIMIT $5

-- name: log_bounds
SELECT last_seq, forgotten_seq FROM projects WHERE project = $1

-- name: position_of_commit
SELECT max(seq) AS seq, max(at) AS at FROM (
    SELECT greatest(seq, changed) AS seq, at FROM records WHERE project = $1 AND commit_id = $2
    UNION ALL SELECT greatest(seq, changed), at FROM history WHERE project = $1 AND commit_id = $2
    UNION ALL SELECT seq, at FROM audit WHERE project = $1 AND id = $2) AS written

-- name: position_at_time
SELECT position_at_time($1, $2)

-- name: current_versions_then
-- Part of a list as of a position: versions that are still current, if they were there by then.
(SELECT project, store, id, version, seq, author, label, integrity, schema_version, body, at, erased, task_id
FROM {relation} WHERE project = {project} AND seq <= {position} AND (changed IS NULL OR changed <= {position})
    AND {conditions} AND (body IS NOT NULL OR erased IS NOT NULL)
ORDER BY seq {direction} LIMIT {limit})

-- name: superseded_versions_then
-- Part of a list as of a position: versions that were superseded after it.
(SELECT project, store, id, version, seq, author, label, integrity, schema_version, body, at, erased, task_id
FROM history WHERE project = {project} AND seq <= {position} AND (changed IS NULL OR changed <= {position})
    AND superseded > {position} AND {conditions} AND (body IS NOT NULL OR erased IS NOT NULL)
ORDER BY seq {direction} LIMIT {limit})

-- name: costs
-- The model calls of a project by group, and their total. A call is of the agent that its token was issued to.
WITH calls AS (
    SELECT CASE $3
            WHEN 'agent' THEN coalesce(body ->> 'agent', CASE WHEN task_id IS NULL THEN 'memory' ELSE 'developer' END)
            WHEN 'day' THEN left(body ->> 'reserved_at', 10)
            WHEN 'model' THEN body ->> 'model'
            WHEN 'project' THEN project
            WHEN 'session' THEN coalesce(body ->> 'session_id', '')
            ELSE coalesce(task_id, '') END AS key,
        body ->> 'state' AS state,
        coalesce(body ->> 'cost_usd', body ->> 'estimate_usd') AS usd,
        coalesce((body ->> 'input_tokens')::bigint, 0) AS input_tokens,
        coalesce((body ->> 'output_tokens')::bigint, 0) AS output_tokens,
        (body ->> 'estimate_input_tokens')::bigint + (body ->> 'estimate_output_tokens')::bigint AS estimate_tokens
    FROM records
    WHERE project = $1 AND store = 'model_calls' AND body IS NOT NULL AND label <= $2
        AND ($4::timestamptz IS NULL OR (body ->> 'reserved_at')::timestamptz >= $4)
        AND ($5::timestamptz IS NULL OR (body ->> 'reserved_at')::timestamptz < $5)
        AND body ->> 'state' <> 'released'
)
SELECT key, grouping(key) = 1 AS is_total,
    count(*) FILTER (WHERE state <> 'reserved') AS calls,
    count(*) FILTER (WHERE state <> 'reserved' AND usd = 'unknown') AS unpriced,
    count(*) FILTER (WHERE state = 'unknown') AS unknown,
    coalesce(sum(nullif(usd, 'unknown')::numeric) FILTER (WHERE state <> 'reserved'), 0) AS usd,
    coalesce(sum(input_tokens) FILTER (WHERE state <> 'reserved'), 0) AS input_tokens,
    coalesce(sum(output_tokens) FILTER (WHERE state <> 'reserved'), 0) AS output_tokens,
    count(*) FILTER (WHERE state = 'reserved') AS under_way,
    coalesce(sum(nullif(usd, 'unknown')::numeric) FILTER (WHERE state = 'reserved'), 0) AS reserved_usd,
    coalesce(sum(estimate_tokens) FILTER (WHERE state = 'reserved'), 0) AS reserved_tokens
FROM calls WHERE $7::text IS NULL OR key = $7 GROUP BY GROUPING SETS ((key), ())
ORDER BY is_total DESC, CASE WHEN $3 = 'day' THEN key END DESC, usd DESC, key
LIMIT 1 + $6

-- name: organisation_use
SELECT * FROM organisation_use($1, $2)

-- name: recorded_commit
-- A commit with its leaf and its read set.
SELECT a.body, a.packed AS packed_leaf, a.salt, a.previous, a.leaf, r.cause::text AS cause, r.reads::text AS reads, r.answers, r.packed,
       EXISTS (SELECT FROM sources s WHERE s.project = a.project AND s.commit_id = a.id) AS has_sources
FROM audit a LEFT JOIN read_sets r ON r.project = a.project AND r.commit_id = a.id
WHERE a.project = $1 AND a.id = $2 AND a.kind = 'commit'

-- name: leaves_of_erasures
SELECT body FROM audit WHERE project = $1 AND body LIKE '%"erased":{%' AND body::jsonb ? 'erased'

-- name: recorded_versions
-- Versions of records, superseded ones too, by project, store, id and version.
SELECT found.* FROM unnest($1::text[], $2::text[], $3::text[], $4::int[]) AS wanted (project, store, id, version)
CROSS JOIN LATERAL (
    SELECT project, store, id, version, seq, author, label, integrity, schema_version, body, at, erased, commit_id,
           encode(sha256, 'hex') AS sha256
    FROM current_records
    WHERE project = wanted.project AND store = wanted.store AND id = wanted.id AND version = wanted.version
    UNION ALL
    SELECT project, store, id, version, seq, author, label, integrity, schema_version, body, at, erased, commit_id,
           encode(sha256, 'hex')
    FROM history
    WHERE project = wanted.project AND store = wanted.store AND id = wanted.id AND version = wanted.version
    LIMIT 1) AS found

-- name: recorded_messages
SELECT id, type, body, task_id, due_at, timer, records, parts,
       repeated_bodies(project, commit_id, records) AS repeated
FROM messages WHERE project = $1 AND id = ANY ($2::uuid[])
UNION ALL
SELECT id, type, body, task_id, due_at, timer, records, parts, repeated_bodies(project, commit_id, records)
FROM decision_messages WHERE project = $1 AND id = ANY ($2::uuid[]) AND commit_id = $3

-- name: leaves_of_commits
SELECT body, packed FROM audit WHERE project = $1 AND id = ANY ($2::uuid[])

-- name: label_of_message
SELECT label FROM messages WHERE project = $1 AND id = $2 AND (body <> '{}' OR records IS NOT NULL)

-- name: labels_of_versions
-- The highest label of each version, and of its record as it is now.
SELECT wanted.store, wanted.id, wanted.version, max(found.label) AS label,
       coalesce(bool_or(found.version = wanted.version AND found.erased IS NULL), false) AS known
FROM unnest($2::text[], $3::text[], $4::int[]) AS wanted (store, id, version)
LEFT JOIN LATERAL (
    SELECT version, label, erased FROM current_records
    WHERE project = ANY ($1::text[]) AND store = wanted.store AND id = wanted.id
    UNION ALL
    SELECT version, label, erased FROM history
    WHERE project = ANY ($1::text[]) AND store = wanted.store AND id = wanted.id AND version = wanted.version
) AS found ON true
GROUP BY wanted.store, wanted.id, wanted.version

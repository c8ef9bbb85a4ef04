-- Statements of the audit log: leaves, the hash tree over them, and signed checkpoints.

-- name: leaves_of_task
SELECT position, leaf, salt, previous, body, packed FROM audit WHERE project = $1
    AND task_id = $2 AND (position > $3 OR position IS NULL)
ORDER BY position LIMIT $4

-- name: leaves_by_id
SELECT position, leaf, salt, previous, body, packed FROM audit WHERE project = $1 AND id = ANY ($2::uuid[]) ORDER BY position

-- name: leaves_after
-- Every leaf of the log after a position: of other projects its hash alone.
SELECT h.leaf_position, h.leaf_hash, a.* FROM leaf_hashes($2, $3) AS h
LEFT JOIN (SELECT position, leaf, salt, previous, body, packed FROM audit WHERE project = $1 AND position > $2) AS a
    ON a.position = h.leaf_position
ORDER BY h.leaf_position

-- name: checkpoints_before
SELECT size, root, note, at FROM audit_checkpoints WHERE size < $1 ORDER BY size DESC LIMIT $2

-- name: all_checkpoints
SELECT size, root, note FROM audit_checkpoints

-- name: refusals_before
-- Refusals of a project, newest first; one of them by its id. `place` counts within the project: where a leaf is in
-- the whole log would tell how much others do.
SELECT id, task_id, body, at, place FROM (
    SELECT arrival, row_number() OVER (ORDER BY arrival) AS place FROM audit WHERE project = $1 AND kind = 'refusal'
) AS of_project
JOIN audit USING (arrival)
WHERE project = $1 AND ($2::text IS NULL OR id::text = $2) AND place < $3
ORDER BY place DESC LIMIT $4

-- name: sequence_leaves
SELECT sequence_leaves($1)

-- name: flush_head
UPDATE audit_head SET position = position WHERE shard = '0'

-- name: head_position
SELECT position FROM audit_head WHERE shard = '0'

-- name: leaf_hashes
SELECT leaf_position, leaf_hash FROM leaf_hashes($1, $2)

-- name: count_tiles
SELECT count(*) FROM audit_tiles WHERE level = $1

-- name: tiles
SELECT t.level, t.number, t.hashes FROM unnest($1::smallint[], $2::bigint[]) AS wanted (level, number)
JOIN audit_tiles t USING (level, number)

-- name: add_tiles
INSERT INTO audit_tiles (level, number, hashes) SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::bytea[])
ON CONFLICT DO NOTHING

-- name: all_notes
SELECT note FROM audit_checkpoints ORDER BY size

-- name: add_checkpoint
INSERT INTO audit_checkpoints (size, root, note) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING

-- name: leaves_of_other_project
-- Leaves of a project as they are verified for another: without their own content.
SELECT position, task_id, previous, leaf, chain IS NOT NULL AS older, salt, body, packed, NULL AS own
FROM audit WHERE project = $1 ORDER BY position

-- name: leaves_of_project
-- Leaves of a project, each with its own content.
SELECT position, task_id, previous, leaf, chain IS NOT NULL AS older, salt, body, packed,
       ROW (kind, id::text, seq, (extract(epoch FROM at) * 1000000)::bigint)
FROM audit WHERE project = $1 ORDER BY position

-- name: all_tiles
SELECT level, number, hashes FROM audit_tiles ORDER BY level, number

-- name: written_records
SELECT store, id, version, commit_id, body::text, erased IS NOT NULL, encode(sha256, 'hex'),
       jsonb_build_array(task_id, author, label, integrity, schema_version)::text,
       jsonb_build_array(seq, changed, (extract(epoch FROM at) * 1000000)::bigint)::text, NULL::bigint
FROM current_records WHERE project = $1
UNION ALL
-- Parts of a decision where none can be.
SELECT 'decisions', coalesce(decision_id, id), 1, commit_id, decision::text, false, NULL, NULL, NULL, NULL
FROM records WHERE project = $1 AND (decision_id IS NULL OR store <> 'actions')
    AND num_nonnulls(decision_id, decision_seq, decision_sha256, decision) > 0
UNION ALL
SELECT store, id, version, commit_id, body::text, erased IS NOT NULL, encode(sha256, 'hex'),
       jsonb_build_array(task_id, author, label, integrity, schema_version)::text,
       jsonb_build_array(seq, changed, (extract(epoch FROM at) * 1000000)::bigint)::text, superseded
FROM history WHERE project = $1

-- name: written_messages
SELECT id, type, body, jsonb_build_array(task_id, subject, audience, label, integrity, timer)::text AS stamps,
       commit_id::text AS commit,
       jsonb_build_array(seq, sender, inbound_id, commit_id, (extract(epoch FROM due_at) * 1000000)::bigint, structured,
                         (extract(epoch FROM at) * 1000000)::bigint)::text AS columns, task_version, records, parts,
       repeated_bodies(project, commit_id, records) AS repeated
FROM logged_messages WHERE project = $1

-- name: written_inbox
SELECT consumer, message_id, step, last, fence, outcome, reply::text, (extract(epoch FROM at) * 1000000)::bigint
FROM inbox WHERE project = $1

-- name: written_read_sets
SELECT commit_id::text AS commit, cause::text, reads::text, (extract(epoch FROM at) * 1000000)::bigint AS at,
       answers, packed
FROM read_sets WHERE project = $1

-- name: commits_with_sources
-- Commits whose read sets an earlier release may have deleted.
SELECT DISTINCT commit_id::text FROM sources WHERE project = $1

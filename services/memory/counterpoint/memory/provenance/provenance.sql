-- Statements of provenance: the edges of derivation, and the versions that they lead to.

-- name: latest_read_set
SELECT coalesce(max(n), 0) FROM read_sets WHERE project = $1

-- name: versions_of_record
SELECT version, seq, changed, sha256, body IS NOT NULL AS there FROM current_records
WHERE project = $1 AND store = $2 AND id = $3
UNION ALL
SELECT version, seq, changed, sha256, body IS NOT NULL FROM history WHERE project = $1 AND store = $2 AND id = $3
ORDER BY version

-- name: chunks_of_document
-- Chunks of a document that were written between two positions.
SELECT id, version FROM records
WHERE project = $1 AND store = 'chunks' AND id BETWEEN $2 || '-0' AND $2 || '-9999999999'
    AND seq > $3 AND greatest(seq, changed) < $4
UNION ALL
SELECT id, version FROM history
WHERE project = $1 AND store = 'chunks' AND id BETWEEN $2 || '-0' AND $2 || '-9999999999'
    AND seq > $3 AND greatest(seq, changed) < $4

-- name: readers
-- Commits that read some versions, each with the indexes of the versions.
SELECT reader, items FROM readers_of($1, $2, $3, $4, $5)

-- name: writes_of_commits
SELECT given.commit_id, made.* FROM unnest($2::uuid[]) AS given (commit_id)
CROSS JOIN LATERAL (
    SELECT store, id, version, task_id, label, seq, at, body -> 'sources' AS sources FROM current_records AS present
    WHERE project = $1 AND present.commit_id = given.commit_id
    UNION ALL
    SELECT store, id, version, task_id, label, seq, at, body -> 'sources' FROM history
    WHERE project = $1 AND history.commit_id = given.commit_id
    OFFSET 0) AS made

-- name: restorations
-- Versions as which some versions were restored.
SELECT found.* FROM unnest($2::text[], $3::text[], $4::int[]) AS given (store, id, version)
CROSS JOIN LATERAL (
    SELECT seq FROM (
        SELECT seq FROM records
        WHERE project = $1 AND store = given.store AND id = given.id AND version = given.version
        UNION ALL
        SELECT seq FROM history
        WHERE project = $1 AND store = given.store AND id = given.id AND version = given.version) AS either LIMIT 1
) AS origin
CROSS JOIN LATERAL (
    SELECT store, id, version, task_id, label, seq, at FROM records
    WHERE project = $1 AND store = given.store AND id = given.id AND seq = origin.seq AND changed > seq
    UNION ALL
    SELECT store, id, version, task_id, label, seq, at FROM history
    WHERE project = $1 AND store = given.store AND id = given.id AND seq = origin.seq AND changed > seq
    OFFSET 0) AS found

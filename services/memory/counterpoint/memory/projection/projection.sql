-- Statements of the projections: changes of the record in their order.

-- name: project_identity
SELECT created_at, last_seq FROM projects WHERE project = $1

-- name: changes_after
-- The next changes of some stores after a position, each store by its index.
SELECT store, id, version, seq, author, label, integrity, task_id, schema_version, body, place
FROM unnest($2::text[]) AS wanted (of_store) CROSS JOIN LATERAL (
    (SELECT store, id, version, seq, author, label, integrity, task_id, schema_version, body, seq AS place FROM records
     WHERE project = $1 AND store = of_store AND seq > $3 AND (changed IS NULL OR changed <= seq)
     ORDER BY seq LIMIT {batch})
    UNION ALL
    (SELECT store, id, version, seq, author, label, integrity, task_id, schema_version, body, changed AS place
     FROM records WHERE project = $1 AND store = of_store AND changed > $3 AND changed > seq
     ORDER BY changed LIMIT {batch})
) AS found
ORDER BY place LIMIT {batch}

-- name: count_records
SELECT count(*) FROM records WHERE project = $1 AND store = ANY ($2)

-- name: records_by_ids
SELECT store, id, version, seq, author, label, integrity, task_id, schema_version, body FROM records
WHERE project = $1 AND store = ANY ($2) AND label <= $3 AND body IS NOT NULL AND seq > $4 ORDER BY seq LIMIT $5

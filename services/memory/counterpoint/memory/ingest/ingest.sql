-- Statements of ingest: blobs, documents, past incidents, entities and relations.

-- name: add_blob
INSERT INTO blobs (project, sha256, bytes) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING

-- name: blob
SELECT bytes, complete FROM blobs WHERE project = $1 AND sha256 = $2

-- name: add_blob_part
INSERT INTO blob_parts (project, sha256, part, content) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING

-- name: blob_parts
SELECT part FROM blob_parts WHERE project = $1 AND sha256 = $2 ORDER BY part

-- name: blob_content
SELECT content FROM blob_parts WHERE project = $1 AND sha256 = $2 ORDER BY part

-- name: complete_blob
UPDATE blobs SET complete = true WHERE project = $1 AND sha256 = $2

-- name: delete_blob_parts
DELETE FROM blob_parts WHERE project = $1 AND sha256 = $2

-- name: delete_blob
DELETE FROM blobs WHERE project = $1 AND sha256 = $2

-- name: document_and_chunks
-- A document and its chunks, of these no body.
SELECT store, id, version, body, sha256 FROM records WHERE project = $1 AND store = 'documents' AND id = $2
UNION ALL
SELECT store, id, version, NULL, CASE WHEN body IS NOT NULL THEN sha256 END FROM records
WHERE project = $1 AND store = 'chunks' AND id BETWEEN $2 || '-0' AND $2 || '-9999999999'

-- name: sources_without_document
-- Sources of chunks whose document has no record.
SELECT r.body ->> 'source' AS source FROM (
    SELECT regexp_replace(id, '-[0-9]+$', '') AS document_id, min(id) AS id FROM records
    WHERE project = $1 AND store = 'chunks' AND body IS NOT NULL GROUP BY 1) AS piece
JOIN records r ON r.project = $1 AND r.store = 'chunks' AND r.id = piece.id
WHERE NOT EXISTS (
    SELECT FROM records WHERE project = $1 AND store = 'documents' AND id = document_id AND body IS NOT NULL)

-- name: ingest_job
SELECT version, body FROM records WHERE project = $1 AND store = 'ingests' AND id = $2

-- name: records_by_id
SELECT id, version, body FROM records WHERE project = $1 AND store = $2 AND id = ANY ($3)

-- name: next_changed
-- The next records of some stores ($3) that a follower has not reached, of tasks only those that have ended. Each store
-- by its two indexes: one condition on both positions would read all records of the stores.
SELECT store, id, version, place, label, integrity, body
FROM (SELECT coalesce((SELECT {reached} FROM extracted WHERE project = $1), 0) AS reached OFFSET 0) AS follower
CROSS JOIN unnest($3::text[]) AS followed (of_store) CROSS JOIN LATERAL (
    (SELECT store, id, version, seq AS place, label, integrity, body FROM records
     WHERE project = $1 AND store = of_store AND seq > reached AND (changed IS NULL OR changed <= seq)
        AND (store <> 'tasks' OR by_state IN ('completed', 'failed') OR body IS NULL)
     ORDER BY seq LIMIT $2)
    UNION ALL
    (SELECT store, id, version, changed AS place, label, integrity, body FROM records
     WHERE project = $1 AND store = of_store AND changed > reached AND changed > seq
        AND (store <> 'tasks' OR by_state IN ('completed', 'failed') OR body IS NULL)
     ORDER BY changed LIMIT $2)
) AS found
ORDER BY place LIMIT $2

-- name: mark_reached
INSERT INTO extracted AS known (project, {reached}) VALUES ($1, $2)
ON CONFLICT (project) DO UPDATE SET {reached} = greatest(known.{reached}, excluded.{reached})

-- name: is_current_version
SELECT true FROM records WHERE project = $1 AND store = $2 AND id = $3 AND version = $4

-- name: chunk_texts
SELECT body ->> 'text' AS text FROM records
WHERE project = $1 AND store = 'chunks' AND id BETWEEN $2 || '-0' AND $2 || '-9999999999' AND body IS NOT NULL
ORDER BY id

-- name: mentions_and_entities
-- Relationships of a subject ($2), entities ($3) and deleted relationships ($4) by id, and relations found in other
-- versions of a document ($5, $6).
SELECT store, id, version, body IS NOT NULL AS there, body FROM records
WHERE project = $1 AND store = 'relationships' AND by_source = left($2, 200) AND body ->> 'source' = $2
UNION ALL
SELECT store, id, version, body IS NOT NULL, NULL FROM records
WHERE project = $1 AND store = 'entities' AND id = ANY ($3)
UNION ALL
SELECT store, id, version, body IS NOT NULL, NULL FROM records
WHERE project = $1 AND store = 'relationships' AND id = ANY ($4) AND body IS NULL
UNION ALL
SELECT store, id, version, true, body FROM records
WHERE project = $1 AND store = 'relationships' AND by_source = left($5, 200) AND body ->> 'source' = $5
    AND body -> 'properties' -> 'version' <> to_jsonb($6::int)

-- name: passages
SELECT id, version, label, integrity, body ->> 'text' AS text FROM records
WHERE project = $1 AND store = 'chunks' AND id BETWEEN $2 || '-0' AND $2 || '-9999999999' AND body IS NOT NULL
ORDER BY id LIMIT $3

-- name: relationship_versions
SELECT id, version, body IS NOT NULL AS there FROM records
WHERE project = $1 AND store = 'relationships' AND id = ANY ($2)

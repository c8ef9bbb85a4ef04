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

-- name: next_mentioning
-- The next documents and ended tasks whose entities are to be extracted.
SELECT store, id, version, greatest(seq, changed) AS place, label, integrity, body FROM records
WHERE project = $1 AND store IN ('documents', 'tasks')
    AND (seq > coalesce((SELECT upto FROM extracted WHERE project = $1), 0)
        OR changed > coalesce((SELECT upto FROM extracted WHERE project = $1), 0))
    AND (store = 'documents' OR by_state IN ('completed', 'failed') OR body IS NULL)
ORDER BY place LIMIT $2

-- name: is_current_version
SELECT true FROM records WHERE project = $1 AND store = $2 AND id = $3 AND version = $4

-- name: mark_extracted
INSERT INTO extracted AS known (project, upto) VALUES ($1, $2)
ON CONFLICT (project) DO UPDATE SET upto = greatest(known.upto, excluded.upto)

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

-- name: next_related
-- The next documents whose relations are to be extracted.
SELECT store, id, version, greatest(seq, changed) AS place, label, integrity, body FROM records
WHERE project = $1 AND store = 'documents'
    AND (seq > coalesce((SELECT related FROM extracted WHERE project = $1), 0)
        OR changed > coalesce((SELECT related FROM extracted WHERE project = $1), 0))
ORDER BY place LIMIT $2

-- name: mark_related
INSERT INTO extracted AS known (project, related) VALUES ($1, $2)
ON CONFLICT (project) DO UPDATE SET related = greatest(known.related, excluded.related)

-- name: next_planned
-- The next plans that are to become documents.
SELECT store, id, version, greatest(seq, changed) AS place, label, integrity, body FROM records
WHERE project = $1 AND store = 'plans'
    AND (seq > coalesce((SELECT planned FROM extracted WHERE project = $1), 0)
        OR changed > coalesce((SELECT planned FROM extracted WHERE project = $1), 0))
ORDER BY place LIMIT $2

-- name: mark_planned
INSERT INTO extracted AS known (project, planned) VALUES ($1, $2)
ON CONFLICT (project) DO UPDATE SET planned = greatest(known.planned, excluded.planned)

-- name: passages
SELECT id, version, label, integrity, body ->> 'text' AS text FROM records
WHERE project = $1 AND store = 'chunks' AND id BETWEEN $2 || '-0' AND $2 || '-9999999999' AND body IS NOT NULL
ORDER BY id LIMIT $3

-- name: relationship_versions
SELECT id, version, body IS NOT NULL AS there FROM records
WHERE project = $1 AND store = 'relationships' AND id = ANY ($2)

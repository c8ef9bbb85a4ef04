-- Statements of background jobs.

-- name: restore_lost
SELECT restore_lost($1, $2, $3, $4, $5)

-- name: streams
SELECT name, life, last_seq FROM streams

-- name: set_last_seq
UPDATE streams SET last_seq = $2 WHERE name = $1

-- name: ids_of_store
SELECT id FROM records WHERE project = $1 AND store = $2

-- name: delete_expired_messages
-- And note up to which position the log is deleted.
WITH gone AS (DELETE FROM messages WHERE at < $1 AND coalesce(due_at, at) < $1 RETURNING seq),
upto AS (SELECT max(seq) AS seq FROM gone)
UPDATE projects SET forgotten_seq = upto.seq FROM upto
WHERE project = current_setting('counterpoint.project') AND upto.seq > forgotten_seq

-- name: delete_expired_inbox
-- A cancellation is kept as long as its timer.
DELETE FROM inbox WHERE at < $1 AND NOT (
    outcome = 'cancelled' AND EXISTS (SELECT FROM messages m WHERE m.id = inbox.message_id::uuid))

-- name: delete_expired_uploads
-- Incomplete uploads were never scanned.
WITH gone AS (DELETE FROM blobs WHERE NOT complete AND at < $1 RETURNING project, sha256)
DELETE FROM blob_parts p USING gone WHERE (p.project, p.sha256) = (gone.project, gone.sha256)

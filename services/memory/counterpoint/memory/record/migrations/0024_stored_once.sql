-- What a message repeats of records of its commit is stored in these alone: `records` are their positions, ascending, and
-- `parts` says which fields they have; without it a record has the whole body. See `record/message_bodies.py`.
ALTER TABLE messages ADD records bigint[], ADD parts text;

CREATE FUNCTION repeated_bodies(p_project text, p_commit uuid, p_records bigint[]) RETURNS text LANGUAGE sql STABLE STRICT AS $$
    SELECT jsonb_agg(body ORDER BY seq)::text FROM (
        SELECT seq, body FROM records WHERE project = p_project AND commit_id = p_commit AND seq = ANY (p_records)
        UNION ALL
        SELECT seq, body FROM history WHERE project = p_project AND commit_id = p_commit AND seq = ANY (p_records)) AS repeated
$$;

-- The answers of a delivery's requests, deflated. PostgreSQL compresses rows from two kilobytes on, and less.
ALTER TABLE read_sets ADD packed bytea;
ALTER TABLE read_sets ALTER COLUMN packed SET STORAGE EXTERNAL;

-- Indexes that take less space. Without the position, the rows of a task share one entry. The position at a time is read
-- from the leaves of commits instead of all versions; leaves of older releases get theirs.
DROP INDEX records_by_task, messages_by_task, records_by_time, history_by_time;
CREATE INDEX records_by_task ON records (project, store, task_id) WHERE task_id IS NOT NULL;
CREATE INDEX messages_by_task ON messages (project, task_id) WHERE task_id IS NOT NULL;
DO $$
DECLARE each text;
BEGIN
    FOR each IN SELECT project FROM projects LOOP
        PERFORM set_config('counterpoint.project', each, true);
        UPDATE audit a SET seq = written.seq
        FROM (
            SELECT commit_id, max(greatest(seq, changed)) AS seq FROM (
                SELECT commit_id, seq, changed FROM records WHERE project = each
                UNION ALL SELECT commit_id, seq, changed FROM history WHERE project = each) AS version
            GROUP BY commit_id) AS written
        WHERE a.project = each AND a.id = written.commit_id AND a.seq IS NULL;
    END LOOP;
    PERFORM set_config('counterpoint.project', '', true);
END $$;
CREATE INDEX audit_by_time ON audit (project, at, seq) WHERE seq IS NOT NULL;

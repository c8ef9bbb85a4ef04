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

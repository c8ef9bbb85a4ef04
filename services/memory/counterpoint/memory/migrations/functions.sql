-- The commit: one call applies the steps of one project, all or none. Obstacles have the codes
-- CP002 step known, CP003 fenced, CP004 stale or finished otherwise, CP005 early, CP006 ended, CP007 conflict,
-- CP011 older writer, CP012 deleted before, CP013 embedded by another model. They are everyday work, so they are raised
-- and caught in here, where the server does not log them as errors: the one row returned has `error_code`. The caller
-- then applies the steps one by one, so that only those at fault are refused. CP001 lease lost is an error.
-- Rows are found by LATERAL subqueries with a LIMIT: each is one look by its whole key, whatever the planner thinks of
-- tables that it has no statistics of yet. A plain join may read all that a project has.

CREATE FUNCTION commit_steps(
    p_epoch bigint, p_project text,
    c_id uuid[], c_consumer text[], c_message text[], c_step text[], c_last boolean[], c_fence bigint[],
    c_task text[], c_version int[], c_ended_ok boolean[], c_reads text[], c_cause uuid[], c_audit text[], c_kind text[], c_salt bytea[],
    c_outcome text[], c_reply text[], c_trace text[], c_cancel text[], c_cancel_by text[], c_cancel_task text[],
    w_commit int[], w_store text[], w_id text[], w_expect int[], w_body text[], w_task text[], w_author text[],
    w_label smallint[], w_integrity smallint[], w_sha bytea[], w_schema smallint[],
    m_commit int[], m_id uuid[], m_type text[], m_subject text[], m_task text[], m_versioned boolean[],
    m_audience text[], m_body text[], m_label smallint[], m_integrity smallint[], m_due timestamptz[], m_timer text[],
    m_structured boolean[],
    w_place bigint[], w_at timestamptz[],
    v_store text[], v_id text[], v_version int[], v_source text[], v_label smallint[], v_words text[],
    v_exact text[], v_type text[], v_names text[], v_chars int[],
    e_row int[], e_model text[], e_embedding text[]
) RETURNS TABLE (
    message_id uuid, message_seq bigint, message_version int, error_code text, error_text text, error_detail text
) LANGUAGE plpgsql AS $$
DECLARE
    steps int := cardinality(c_id);
    wrote int := cardinality(w_id);
    sent int := cardinality(m_id);
    base bigint;
    done int;
    fault record;
    models_now record;
    rows_now bigint[];
BEGIN
    PERFORM set_config('counterpoint.project', p_project, true);
    PERFORM 1 FROM lease WHERE shard = '0' AND epoch = p_epoch FOR SHARE;
    IF NOT FOUND THEN RAISE EXCEPTION 'lease lost' USING ERRCODE = 'CP001'; END IF;

    SELECT s.consumer, s.step, s.fence, i.fence AS known_fence, i.step = s.step AS known, i.last INTO fault
    FROM unnest(c_consumer, c_message, c_step, c_fence) AS s(consumer, message, step, fence)
    CROSS JOIN LATERAL (
        SELECT * FROM inbox i
        WHERE i.project = p_project AND i.consumer = s.consumer AND i.message_id = s.message
          AND (i.step = s.step OR i.last OR i.fence > s.fence)
        ORDER BY i.step = s.step DESC, i.last DESC LIMIT 1) AS i
    ORDER BY i.step = s.step DESC, i.last DESC LIMIT 1;
    IF FOUND THEN
        IF fault.known THEN RAISE EXCEPTION 'step known' USING ERRCODE = 'CP002'; END IF;
        IF fault.last THEN RAISE EXCEPTION 'finished' USING ERRCODE = 'CP004'; END IF;
        RAISE EXCEPTION 'fence % is behind %', fault.fence, fault.known_fence USING ERRCODE = 'CP003';
    END IF;

    SELECT s.version, coalesce(r.version, 0) AS found, r.body ->> 'state' IN ('completed', 'failed', 'cancelled') AS ended
    INTO fault
    FROM unnest(c_task, c_version, c_ended_ok) AS s(task, version, ended_ok)
    LEFT JOIN LATERAL (
        SELECT * FROM records WHERE project = p_project AND store = 'tasks' AND id = s.task LIMIT 1) AS r ON true
    WHERE s.task IS NOT NULL AND (
        (s.version IS NOT NULL AND s.version <> coalesce(r.version, 0))
        OR (NOT s.ended_ok AND r.body ->> 'state' IN ('completed', 'failed', 'cancelled')))
    LIMIT 1;
    IF FOUND THEN
        IF fault.version < fault.found THEN RAISE EXCEPTION 'stale' USING ERRCODE = 'CP004'; END IF;
        IF fault.version > fault.found THEN RAISE EXCEPTION 'early' USING ERRCODE = 'CP005'; END IF;
        RAISE EXCEPTION 'the task has ended' USING ERRCODE = 'CP006';
    END IF;

    INSERT INTO projects (project, last_seq) VALUES (p_project, wrote + sent)
    ON CONFLICT (project) DO UPDATE SET last_seq = projects.last_seq + wrote + sent
    RETURNING last_seq - wrote - sent INTO base;

    IF wrote > 0 THEN
        INSERT INTO records (project, store, id, version, seq, task_id, author, label, integrity, body, sha256,
                             schema_version, commit_id)
        SELECT p_project, w.store, w.id, 1, base + w.n, w.task, w.author, w.label, w.integrity, w.body::jsonb, w.sha,
               w.schema, c_id[w.step]
        FROM unnest(w_commit, w_store, w_id, w_expect, w_body, w_task, w_author, w_label, w_integrity, w_sha, w_schema)
            WITH ORDINALITY AS w(step, store, id, expect, body, task, author, label, integrity, sha, schema, n)
        WHERE w.expect = 0
        ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS done = ROW_COUNT;
        IF done < wrote THEN
            SELECT w.store, w.id, w.schema, r.schema_version INTO fault
            FROM unnest(w_store, w_id, w_schema) AS w(store, id, schema)
            CROSS JOIN LATERAL (
                SELECT * FROM records WHERE project = p_project AND store = w.store AND id = w.id LIMIT 1) AS r
            WHERE r.schema_version > w.schema LIMIT 1;
            IF FOUND THEN
                RAISE EXCEPTION '%/%', fault.store, fault.id USING ERRCODE = 'CP011',
                    DETAIL = format('is stored at schema version %s, the writer knows %s', fault.schema_version, fault.schema);
            END IF;
            INSERT INTO history (project, store, id, version, seq, task_id, author, label, integrity, schema_version,
                                 body, sha256, commit_id, at, changed, superseded)
            SELECT r.project, r.store, r.id, r.version, r.seq, r.task_id, r.author, r.label, r.integrity,
                   r.schema_version, r.body, r.sha256, r.commit_id, r.at, r.changed, base + w.n
            FROM unnest(w_store, w_id, w_expect) WITH ORDINALITY AS w(store, id, expect, n)
            CROSS JOIN LATERAL (
                SELECT * FROM records WHERE project = p_project AND store = w.store AND id = w.id LIMIT 1) AS r
            WHERE w.expect > 0 AND r.version = w.expect
            ON CONFLICT DO NOTHING;
            WITH changed AS (
                UPDATE records r
                SET version = w.expect + 1, seq = coalesce(w.place, base + w.n),
                    changed = CASE WHEN w.place IS NOT NULL THEN base + w.n END, task_id = w.task, author = w.author, label = w.label,
                    integrity = w.integrity, body = w.body::jsonb, sha256 = w.sha, schema_version = w.schema,
                    commit_id = c_id[w.step], at = coalesce(w.at, now())
                FROM unnest(w_commit, w_store, w_id, w_expect, w_body, w_task, w_author, w_label, w_integrity, w_sha,
                            w_schema, w_place, w_at)
                    WITH ORDINALITY AS w(step, store, id, expect, body, task, author, label, integrity, sha, schema,
                                         place, at, n)
                CROSS JOIN LATERAL (
                    SELECT ctid FROM records
                    WHERE project = p_project AND store = w.store AND id = w.id AND version = w.expect
                    FOR UPDATE LIMIT 1) AS found
                WHERE r.ctid = found.ctid AND w.expect > 0
                RETURNING 1)
            SELECT done + count(*) INTO done FROM changed;
        END IF;
        IF done < wrote THEN
            SELECT w.store, w.id, w.expect, r.version, w.expect = 0 AND r.version > 0 AND r.body IS NULL AS deleted INTO fault
            FROM unnest(w_store, w_id, w_expect) AS w(store, id, expect)
            LEFT JOIN LATERAL (
                SELECT * FROM records WHERE project = p_project AND store = w.store AND id = w.id LIMIT 1) AS r ON true
            WHERE r.version IS DISTINCT FROM w.expect + 1 OR r.commit_id <> ALL (c_id) LIMIT 1;
            IF fault.deleted THEN
                RAISE EXCEPTION '%/%', fault.store, fault.id USING ERRCODE = 'CP012', DETAIL = fault.version;
            END IF;
            RAISE EXCEPTION '%/%', fault.store, fault.id
                USING ERRCODE = 'CP007', DETAIL = format('expected version %s, found %s', fault.expect, coalesce(fault.version, 0));
        END IF;
    END IF;

    -- Of one name one principal counts; but memory may plant an administrator beside that of an older token.
    IF p_project = '_system' THEN
        SELECT w.store, w.id INTO fault
        FROM unnest(w_commit, w_store, w_id, w_body) AS w(step, store, id, body)
        JOIN records r ON r.project = p_project AND r.store = 'principals' AND r.id <> w.id
            AND r.body ->> 'name' = w.body::jsonb ->> 'name' AND r.body ->> 'revoked_at' IS NULL
        WHERE w.store = 'principals' AND w.body::jsonb ->> 'revoked_at' IS NULL AND c_consumer[w.step] <> 'memory'
        LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION '%/%', fault.store, fault.id
                USING ERRCODE = 'CP007', DETAIL = 'its name is that of another principal';
        END IF;
    END IF;

    IF cardinality(v_id) > 0 THEN
        -- Whoever changes the model waits for this, and what was embedded before the change is embedded again.
        SELECT m.active, m.other INTO models_now FROM models m FOR SHARE;
        IF models_now.active IS NOT NULL
                AND cardinality(array_positions(e_model, models_now.active)) <> cardinality(v_id) THEN
            RAISE EXCEPTION 'embedded by another model than %', models_now.active USING ERRCODE = 'CP013';
        END IF;
        WITH placed AS (
            INSERT INTO vectors (project, store, id, version, source, label, lexemes, type, names, chars)
            SELECT p_project, v.store, v.id, v.version, v.source, v.label,
                   to_tsvector('english', v.words) || array_to_tsvector(string_to_array(v.exact, chr(31))),
                   v.type, string_to_array(v.names, chr(31)), v.chars
            FROM unnest(v_store, v_id, v_version, v_source, v_label, v_words, v_exact, v_type, v_names, v_chars)
                AS v(store, id, version, source, label, words, exact, type, names, chars)
            ON CONFLICT (project, store, id) DO UPDATE
            SET version = excluded.version, source = excluded.source, label = excluded.label, model = NULL,
                lexemes = excluded.lexemes, embedding = NULL, type = excluded.type, names = excluded.names,
                chars = excluded.chars
            RETURNING row, store, id)
        SELECT array_agg(placed.row ORDER BY v.n) INTO rows_now
        FROM unnest(v_store, v_id) WITH ORDINALITY AS v(store, id, n) JOIN placed USING (store, id);
        -- What a model made of an older version is none of this one's.
        DELETE FROM meanings m USING unnest(rows_now) AS written(row)
        CROSS JOIN LATERAL (SELECT ctid FROM meanings WHERE row = written.row OFFSET 0) AS found
        WHERE m.ctid = found.ctid;
        INSERT INTO meanings (row, model, project, store, version, label, embedding)
        SELECT rows_now[e.at], e.model, p_project, v_store[e.at], v_version[e.at], v_label[e.at], e.embedding::vector
        FROM unnest(e_row, e_model, e_embedding) AS e(at, model, embedding)
        WHERE models_now.active IS NULL OR e.model IN (models_now.active, models_now.other);
    END IF;
    IF array_position(w_body, NULL) IS NOT NULL THEN
        DELETE FROM vectors v USING unnest(w_store, w_id, w_body) AS w(store, id, body)
        CROSS JOIN LATERAL (
            SELECT ctid FROM vectors WHERE project = p_project AND store = w.store AND id = w.id FOR UPDATE LIMIT 1) AS found
        WHERE w.body IS NULL AND v.ctid = found.ctid;
    END IF;

    IF cardinality(c_cancel) > 0 THEN
        WITH cancelled AS (
            DELETE FROM pending USING unnest(c_cancel, c_cancel_by, c_cancel_task) AS c(timer, sender, task)
            CROSS JOIN LATERAL (
                SELECT id, audience FROM messages
                WHERE project = p_project AND timer = c.timer AND sender = c.sender
                  AND (c.task IS NULL OR task_id = c.task) OFFSET 0) AS m
            WHERE pending.message_id = m.id
            RETURNING m.id, m.audience)
        INSERT INTO inbox (project, consumer, message_id, step, last, fence, outcome, reply)
        SELECT p_project, consumer, id::text, 'cancelled', true, 0, 'cancelled', '{"status": "stale"}'
        FROM cancelled CROSS JOIN LATERAL unnest(audience) AS consumer ON CONFLICT DO NOTHING;
    END IF;

    IF sent > 0 THEN
        RETURN QUERY
        WITH log AS (
            INSERT INTO messages (project, seq, id, type, subject, task_id, task_version, audience, body, sender,
                                  label, integrity, inbound_id, commit_id, due_at, timer, traceparent, structured)
            SELECT p_project, base + wrote + m.n, m.id, m.type, m.subject, m.task,
                   CASE WHEN m.versioned THEN coalesce(r.version, 0) END,
                   string_to_array(m.audience, ' '), m.body, c_consumer[m.step], m.label, m.integrity,
                   c_message[m.step], c_id[m.step], m.due, m.timer, c_trace[m.step], m.structured
            FROM unnest(m_commit, m_id, m_type, m_subject, m_task, m_versioned, m_audience, m_body, m_label, m_integrity,
                        m_due, m_timer, m_structured)
                WITH ORDINALITY AS m(step, id, type, subject, task, versioned, audience, body, label, integrity, due, timer,
                                     structured, n)
            LEFT JOIN LATERAL (
                SELECT version FROM records
                WHERE m.versioned AND project = p_project AND store = 'tasks' AND id = m.task LIMIT 1) AS r ON true
            RETURNING id, seq, task_version, due_at),
        waiting AS (
            INSERT INTO pending (message_id, project, due_at, timer)
            SELECT id, p_project, coalesce(due_at, now()), due_at IS NOT NULL FROM log)
        SELECT id, seq, task_version, NULL::text, NULL::text, NULL::text FROM log;
    END IF;

    INSERT INTO inbox (project, consumer, message_id, step, last, fence, outcome, reply)
    SELECT p_project, t.consumer, t.message, t.step, t.last, t.fence, t.outcome, t.reply::jsonb
    FROM unnest(c_consumer, c_message, c_step, c_last, c_fence, c_outcome, c_reply)
        AS t(consumer, message, step, last, fence, outcome, reply)
    WHERE t.step <> '';

    INSERT INTO read_sets (project, commit_id, cause, reads)
    SELECT p_project, t.id, t.cause, coalesce(t.reads, '[]')::jsonb FROM unnest(c_id, c_cause, c_reads) AS t(id, cause, reads)
    WHERE t.reads IS NOT NULL OR t.cause IS NOT NULL;

    -- Positions come later, from `sequence_leaves`: no commit waits for another's leaf.
    -- A leaf begins with the places before its first record and before its first message, and with the time.
    INSERT INTO audit (project, id, kind, task_id, body, salt, seq)
    SELECT p_project, t.id, t.kind, t.task,
           format('{"placed":[%s,%s,%s],', base + (SELECT count(*) FROM unnest(w_commit) AS w(step) WHERE w.step < n),
                  base + wrote + (SELECT count(*) FROM unnest(m_commit) AS m(step) WHERE m.step < n),
                  (extract(epoch FROM now()) * 1000000)::bigint) || substr(t.audit, 2),
           t.salt, base + (SELECT count(*) FROM unnest(w_commit) AS w(step) WHERE w.step <= n)
    FROM unnest(c_id, c_kind, c_task, c_audit, c_salt) WITH ORDINALITY AS t(id, kind, task, audit, salt, n) ORDER BY n;
EXCEPTION
    WHEN SQLSTATE 'CP002' OR SQLSTATE 'CP003' OR SQLSTATE 'CP004' OR SQLSTATE 'CP005' OR SQLSTATE 'CP006'
        OR SQLSTATE 'CP007' OR SQLSTATE 'CP011' OR SQLSTATE 'CP012' OR SQLSTATE 'CP013' THEN
        error_code := SQLSTATE;
        GET STACKED DIAGNOSTICS error_text = MESSAGE_TEXT, error_detail = PG_EXCEPTION_DETAIL;
        RETURN NEXT;
END $$;

-- Gives positions to leaves that have none, in the order they came, and chains each to the one before it of its task.
-- It is all that ever changes a leaf, and it changes none that has a position; memory's login may not by itself. The
-- lock on the head keeps out a second sequencer, and the commits of the release before. Returns the head. Places that a
-- crash takes back are given again; before any is signed, the sequencer has it on the disk.
CREATE FUNCTION sequence_leaves(p_limit int) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    head bigint;
    before bytea;
    waiting record;
BEGIN
    IF NOT EXISTS (SELECT FROM audit WHERE position IS NULL) THEN
        RETURN (SELECT position FROM audit_head WHERE shard = '0');
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT position INTO head FROM audit_head WHERE shard = '0' FOR UPDATE;
    FOR waiting IN
        SELECT arrival, project, task_id, salt, body FROM audit WHERE position IS NULL ORDER BY arrival LIMIT p_limit
    LOOP
        before := NULL;
        IF waiting.task_id IS NOT NULL THEN
            SELECT leaf INTO before FROM audit
            WHERE project = waiting.project AND task_id = waiting.task_id AND position IS NOT NULL
            ORDER BY position DESC LIMIT 1;
        END IF;
        head := head + 1;
        UPDATE audit
        SET position = head, previous = before,
            leaf = sha256(waiting.salt || coalesce(before, '') || convert_to(waiting.body, 'UTF8'))
        WHERE arrival = waiting.arrival AND position IS NULL;
    END LOOP;
    UPDATE audit_head SET position = head WHERE shard = '0';
    RETURN head;
END $$;

-- The commitments of leaves by position, of all projects: hashes and no content.
CREATE FUNCTION leaf_hashes(p_after bigint, p_limit int) RETURNS TABLE (leaf_position bigint, leaf_hash bytea)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT position, leaf FROM audit WHERE position > p_after ORDER BY position LIMIT p_limit
$$;

-- What is due and not known to be on the bus, oldest first; others than timers only when they have waited.
CREATE FUNCTION take_due(p_older_than interval, p_limit int)
RETURNS TABLE (message_id uuid, project text) LANGUAGE sql AS $$
    SELECT message_id, project FROM pending
    WHERE due_at <= now() - CASE WHEN timer THEN interval '0' ELSE p_older_than END
    ORDER BY due_at LIMIT p_limit
$$;

-- Put back to pending what its stream lost and its consumers have not finished; returns how many. Lost is what was sent
-- before one moment or after another (NULL: no such moment); what is older than the horizon is not looked at, but for
-- timers, which count from when they are due.
CREATE FUNCTION restore_lost(
    p_project text, p_stream text, p_lost_before timestamptz, p_lost_after timestamptz, p_horizon timestamptz)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE restored_now bigint;
BEGIN
    PERFORM set_config('counterpoint.project', p_project, true);
    WITH sent AS (
        SELECT id, at, due_at, subject, audience FROM messages
        WHERE project = p_project AND p_lost_before IS NOT NULL AND at > p_horizon AND at < p_lost_before
        UNION ALL
        SELECT id, at, due_at, subject, audience FROM messages
        WHERE project = p_project AND p_lost_before IS NOT NULL AND timer IS NOT NULL AND at <= p_horizon AND due_at > p_horizon
        UNION ALL
        SELECT id, at, due_at, subject, audience FROM messages
        WHERE project = p_project AND p_lost_after IS NOT NULL AND at > p_horizon),
    lost AS (
        SELECT DISTINCT m.id FROM sent m LEFT JOIN restored r ON r.message_id = m.id
        WHERE split_part(m.subject, '.', 1) = p_stream AND cardinality(m.audience) > 0
          AND (greatest(m.at, m.due_at, r.at) < p_lost_before OR greatest(m.at, m.due_at, r.at) > p_lost_after)
          AND coalesce(m.due_at, m.at) <= now()
          AND NOT EXISTS (SELECT FROM pending p WHERE p.message_id = m.id)
          AND EXISTS (SELECT FROM unnest(m.audience) AS c WHERE NOT EXISTS (
              SELECT FROM inbox i
              WHERE i.project = p_project AND i.consumer = c AND i.message_id = m.id::text AND i.last))),
    noted AS (
        INSERT INTO restored (message_id) SELECT id FROM lost
        ON CONFLICT (message_id) DO UPDATE SET at = now()),
    put_back AS (
        INSERT INTO pending (message_id, project, timer, due_at)
        SELECT id, p_project, true, now() FROM lost ON CONFLICT DO NOTHING RETURNING 1)
    SELECT count(*) INTO restored_now FROM put_back;
    RETURN restored_now;
END $$;

-- Note for ever what the read sets of a project say of where things come from, of at most so many commits; returns how
-- many there were. What a message carried of what its sender had read is left out: it is a source of the sender's commit.
CREATE FUNCTION link_sources(p_project text, p_limit int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    noted int;
    last bigint;
BEGIN
    PERFORM set_config('counterpoint.project', p_project, true);
    WITH fresh AS MATERIALIZED (
        SELECT n, commit_id, cause, reads FROM read_sets
        WHERE project = p_project AND n > coalesce((SELECT upto FROM linked WHERE project = p_project), 0)
        ORDER BY n LIMIT p_limit),
    made AS (
        INSERT INTO sources (project, store, id, version, commit_id, cited, used, shared)
        SELECT p_project, item ->> 0, item ->> 1, (item ->> 2)::int, commit_id,
               coalesce(item ->> 4 IN ('cited', 'quoted'), false), coalesce(item ->> 4 = 'cited', false),
               coalesce((item ->> 5)::boolean, false)
        FROM fresh, jsonb_array_elements(reads) AS item WHERE coalesce(item ->> 4, '') <> 'carried'
        UNION ALL
        -- A commit whose result was worked on is among the reads.
        SELECT p_project, 'commits', cause::text, 1, commit_id, true, false, false FROM fresh
        WHERE cause IS NOT NULL AND NOT reads @> '[["commits"]]'
        ON CONFLICT DO NOTHING)
    SELECT count(*), max(n) INTO noted, last FROM fresh;
    IF noted > 0 THEN
        INSERT INTO linked AS known (project, upto) VALUES (p_project, last)
        ON CONFLICT (project) DO UPDATE SET upto = greatest(known.upto, excluded.upto);
    END IF;
    RETURN noted;
END $$;

-- Forget the content of all that a commit of an erasure deleted: every version, and of the leaves that this commit's own
-- leaf names the content, with what was sent beside them. What came about the same tasks in between is not named, and
-- stays. Again is the same. Returns how many versions it were.
CREATE FUNCTION erase_content(p_project text, p_commit uuid) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    wiped bigint;
    named bigint[];
    commits uuid[];
BEGIN
    PERFORM set_config('counterpoint.project', p_project, true);
    SELECT ARRAY(SELECT jsonb_array_elements_text(body::jsonb #> '{erased,leaves}')::bigint) INTO named
    FROM audit WHERE project = p_project AND id = p_commit;
    SELECT array_agg(id) INTO commits FROM audit WHERE project = p_project AND position = ANY (named);
    UPDATE history h
    SET body = NULL, sha256 = NULL, by_state = NULL, by_error_signature = NULL, by_source = NULL, by_target = NULL,
        by_parent_run_id = NULL, by_root_run_id = NULL, by_job = NULL, by_namespace = NULL, erased = now()
    FROM records r
    WHERE r.project = p_project AND r.commit_id = p_commit AND r.body IS NULL
      AND h.project = r.project AND h.store = r.store AND h.id = r.id AND h.erased IS NULL;
    GET DIAGNOSTICS wiped = ROW_COUNT;
    UPDATE records SET erased = now()
    WHERE project = p_project AND commit_id = p_commit AND body IS NULL AND erased IS NULL;
    DELETE FROM pending USING messages m
    WHERE pending.message_id = m.id AND m.project = p_project AND m.commit_id = ANY (commits);
    -- Without an audience it is never sent again.
    UPDATE messages SET body = '{}', audience = '{}' WHERE project = p_project AND commit_id = ANY (commits);
    UPDATE audit SET body = NULL, salt = NULL
    WHERE project = p_project AND position = ANY (named) AND body IS NOT NULL;
    DELETE FROM lexicon WHERE project = p_project AND rows <= 0;
    DELETE FROM embeddings WHERE project = p_project;
    DELETE FROM blob_parts b WHERE project = p_project AND NOT EXISTS (
        SELECT FROM records WHERE project = p_project AND store = 'documents'
        AND body #>> '{blob,sha256}' = encode(b.sha256, 'hex'));
    DELETE FROM blobs b WHERE project = p_project AND NOT EXISTS (
        SELECT FROM records WHERE project = p_project AND store = 'documents'
        AND body #>> '{blob,sha256}' = encode(b.sha256, 'hex'));
    RETURN wiped;
END $$;

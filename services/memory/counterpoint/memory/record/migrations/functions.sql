-- commit_steps applies steps of one project in one call, all or none. Its faults, by SQLSTATE:
--   CP001 lease_lost    another memory process is active
--   CP002 step_known    the step was applied before
--   CP003 fenced        a newer delivery of the message has begun
--   CP004 stale         the task has a higher version than the message, or the message is finished
--   CP005 early         the task has a lower version than the message
--   CP006 task_ended    the task is completed, failed or cancelled
--   CP007 conflict      a record is at another version than expected
--   CP011 older_writer  a record has a newer schema version than the writer supports
--   CP012 tombstone     insert over a tombstone; the detail is its version
--   CP013 other_model   the texts were embedded by a model that is no longer active
--   CP014 over_limit    a call exceeds a limit of the organisation; the detail is the limit, its version and its period
-- CP001 aborts the transaction and is logged by the server. The others are expected: the function catches them, so that
-- the server does not log them as errors, and returns one row with `error_code`. The caller then applies smaller groups,
-- so that only the faulty steps are refused.
-- Rows are looked up by LATERAL subqueries with a LIMIT. This forces one index lookup by the full key for each row, even
-- if the tables have no statistics yet; a plain join may be planned as a scan of all rows of the project.

-- Parameters of commit_steps, one composite each, in the order of the steps. `step` is the 1-based index of a row's step;
-- `number` is that of a write among all writes, those of joint decisions included.
CREATE TYPE step_row AS (
    id uuid, consumer text, message text, step text, last boolean, fence bigint, task text, version int, ended_ok boolean,
    reads text, cause uuid, packed bytea, audit text, packed_audit bytea, kind text, salt bytea, outcome text, reply text, trace text,
    writes_before int, writes int, messages_before int, messages int
);
CREATE TYPE cancelled_timer_row AS (timer text, sender text, task text);
CREATE TYPE write_row AS (
    step int, number int, store text, id text, expect int, body text, task text, author text, label smallint,
    integrity smallint, sha bytea, schema int, place bigint, at timestamptz, decision_id text, decision_number int,
    decision_sha bytea, decision text
);
-- `records` are numbers of writes, ascending; `number` is that of a message among all messages. The decisions are messages
-- that are stored in this row, each with its number and that of its write.
CREATE TYPE message_row AS (
    step int, number int, id uuid, type text, subject text, task text, versioned boolean, audience text[], body text, label smallint,
    integrity smallint, due timestamptz, timer text, live boolean, structured boolean,
    records int[], parts text, decision_ids uuid[], decision_numbers int[], decision_records int[],
    decision_subjects text[]
);
CREATE TYPE vector_row AS (
    store text, id text, version int, source text, label smallint, words text, exact text[], type text, names text[],
    chars int
);
-- `vector` is the 1-based index of the vector row.
CREATE TYPE embedding_row AS (vector int, model text, embedding text);

-- Gives the joint decisions of some actions, and these decisions, rows of their own, because one of both is written.
CREATE FUNCTION separate_decisions(p_project text, p_writes write_row[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    rows_joint tid[];
BEGIN
    SELECT array_agg(found.ctid) INTO rows_joint FROM unnest(p_writes) AS w
    CROSS JOIN LATERAL (
        SELECT ctid FROM records
        WHERE w.store = 'actions' AND project = p_project AND store = 'actions' AND id = w.id AND decision_id IS NOT NULL
        UNION ALL
        SELECT ctid FROM records WHERE w.store = 'decisions' AND project = p_project AND decision_id = w.id) AS found
    WHERE w.expect > 0;
    IF rows_joint IS NULL THEN RETURN; END IF;
    INSERT INTO records (project, store, id, version, seq, task_id, author, label, integrity, schema_version, body, sha256,
                         commit_id, at)
    SELECT project, 'decisions', decision_id, 1, decision_seq, task_id, author, label, integrity, schema_version,
           decision_body(project, body, decision), decision_sha256, commit_id, at
    FROM records WHERE ctid = ANY (rows_joint);
    UPDATE records SET decision_id = NULL, decision_seq = NULL, decision_sha256 = NULL, decision = NULL
    WHERE ctid = ANY (rows_joint);
END $$;

-- The limits of the organisation that count the calls of a project made at a time, and the start of their period then.
-- Without a project all limits.
CREATE FUNCTION organisation_limits_at(p_project text, p_at timestamptz)
RETURNS TABLE (limit_id text, limit_version int, set_at timestamptz, limited jsonb, since timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT id, version, at, body,
           CASE body ->> 'period' WHEN 'total' THEN '-infinity'::timestamptz
                ELSE date_trunc(body ->> 'period', p_at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' END
    FROM records
    WHERE project = '_system' AND store = 'organisation_limits' AND body IS NOT NULL
        AND (p_project IS NULL OR jsonb_array_length(coalesce(body -> 'projects', '[]')) = 0 OR body -> 'projects' ? p_project)
    ORDER BY id
$$;

-- The calls that a limit of the organisation counts in its period from `p_since` on, by project.
CREATE FUNCTION organisation_calls(p_limit jsonb, p_since timestamptz)
RETURNS TABLE (calling_project text, call_id text, under_way boolean, usd text, tokens bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT calls.project, calls.id, state = 'reserved', CASE WHEN state = 'reserved' THEN estimate ELSE coalesce(cost, estimate) END,
           CASE WHEN state = 'reserved' THEN estimated_tokens ELSE used_tokens END
    FROM projects AS p CROSS JOIN LATERAL (
        SELECT project, id, body ->> 'state' AS state, body ->> 'cost_usd' AS cost, body ->> 'estimate_usd' AS estimate,
               (body ->> 'estimate_input_tokens')::bigint + (body ->> 'estimate_output_tokens')::bigint AS estimated_tokens,
               coalesce((body ->> 'input_tokens')::bigint, 0) + coalesce((body ->> 'output_tokens')::bigint, 0) AS used_tokens
        FROM records
        WHERE project = p.project AND store = 'model_calls' AND body IS NOT NULL AND body ->> 'state' <> 'released'
            AND (p_since = '-infinity' OR date_trunc(
                p_limit ->> 'period', (body ->> 'reserved_at')::timestamptz AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' = p_since)
        OFFSET 0) AS calls
    WHERE jsonb_array_length(coalesce(p_limit -> 'projects', '[]')) = 0 OR p_limit -> 'projects' ? p.project
$$;

-- Creates the counter of a limit for a period, if there is none of this version, with the calls that were made so far. Those of
-- a period that began after the limit was set have all been counted since.
CREATE FUNCTION open_organisation_counter(
    p_id text, p_version int, p_set_at timestamptz, p_limit jsonb, p_since timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM organisation_spending WHERE limit_id = p_id AND since = p_since AND version = p_version) THEN
        RETURN;
    END IF;
    -- Earlier periods count no new calls; those with calls under way are kept until these end. Removed limits have none.
    DELETE FROM organisation_spending AS s
    WHERE (limit_id = p_id AND (since = p_since OR (since < p_since AND NOT EXISTS (
            SELECT FROM organisation_reservations r WHERE r.limit_id = s.limit_id AND r.since = s.since))))
        OR NOT EXISTS (SELECT FROM organisation_limits_at(NULL, now()) AS l WHERE l.limit_id = s.limit_id);
    INSERT INTO organisation_spending (limit_id, since, version, usd, tokens) VALUES (p_id, p_since, p_version, 0, 0);
    IF p_set_at < p_since THEN RETURN; END IF;
    INSERT INTO organisation_reservations (project, call_id, limit_id, since, usd, tokens)
    SELECT c.calling_project, c.call_id, p_id, p_since, coalesce(nullif(c.usd, 'unknown')::numeric, 0), c.tokens
    FROM organisation_calls(p_limit, p_since) AS c WHERE c.under_way;
    UPDATE organisation_spending AS s
    SET (usd, tokens) = (
            SELECT coalesce(sum(nullif(c.usd, 'unknown')::numeric), 0), coalesce(sum(c.tokens), 0)
            FROM organisation_calls(p_limit, p_since) AS c WHERE NOT c.under_way),
        (reserved_usd, reserved_tokens) = (
            SELECT coalesce(sum(r.usd), 0), coalesce(sum(r.tokens), 0)
            FROM organisation_reservations AS r WHERE r.limit_id = p_id AND r.since = p_since)
    WHERE s.limit_id = p_id AND s.since = p_since;
END $$;

-- Counts the calls among some writes under the limits of the organisation, before they are written: reserves those that
-- begin, settles those that end. Raises CP014 for a call that could exceed a limit, with the wording for its caller, who
-- learns nothing of what other projects have used.
CREATE FUNCTION charge_organisation(p_project text, p_writes write_row[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    call record;
    held record;
    limited record;
    counter organisation_spending;
    label text;
BEGIN
    FOR call IN
        SELECT w.id, w.body::jsonb ->> 'state' AS state, (w.body::jsonb ->> 'reserved_at')::timestamptz AS made_at,
               w.body::jsonb ->> 'estimate_usd' AS estimate, w.body::jsonb ->> 'cost_usd' AS cost,
               (w.body::jsonb ->> 'estimate_input_tokens')::bigint + (w.body::jsonb ->> 'estimate_output_tokens')::bigint AS tokens,
               coalesce((w.body::jsonb ->> 'input_tokens')::bigint, 0)
                   + coalesce((w.body::jsonb ->> 'output_tokens')::bigint, 0) AS used_tokens
        FROM unnest(p_writes) AS w WHERE w.store = 'model_calls' ORDER BY w.number
    LOOP
        -- A call whose record is deleted before its end counts at what was reserved for it.
        FOR held IN
            DELETE FROM organisation_reservations r WHERE r.project = p_project AND r.call_id = call.id RETURNING r.*
        LOOP
            UPDATE organisation_spending AS s
            SET reserved_usd = s.reserved_usd - held.usd, reserved_tokens = s.reserved_tokens - held.tokens,
                usd = s.usd + CASE WHEN call.state IN ('reserved', 'released') THEN 0
                                   WHEN call.state IS NULL THEN held.usd
                                   ELSE coalesce(nullif(coalesce(call.cost, call.estimate), 'unknown')::numeric, 0) END,
                tokens = s.tokens + CASE WHEN call.state IN ('reserved', 'released') THEN 0
                                         WHEN call.state IS NULL THEN held.tokens ELSE call.used_tokens END
            WHERE s.limit_id = held.limit_id AND s.since = held.since;
        END LOOP;
        IF call.state IS DISTINCT FROM 'reserved' THEN CONTINUE; END IF;
        FOR limited IN SELECT * FROM organisation_limits_at(p_project, call.made_at) LOOP
            PERFORM open_organisation_counter(
                limited.limit_id, limited.limit_version, limited.set_at, limited.limited, limited.since);
            UPDATE organisation_spending AS s
            SET reserved_usd = s.reserved_usd + coalesce(nullif(call.estimate, 'unknown')::numeric, 0),
                reserved_tokens = s.reserved_tokens + call.tokens
            WHERE s.limit_id = limited.limit_id AND s.since = limited.since RETURNING s.* INTO counter;
            label := 'the limit of the organisation' || coalesce(' ' || (limited.limited ->> 'name'), '')
                || CASE limited.limited ->> 'period' WHEN 'total' THEN '' ELSE ' for a ' || (limited.limited ->> 'period')
                    || to_char((limited.since AT TIME ZONE 'UTC') + ('1 ' || (limited.limited ->> 'period'))::interval,
                               '", until "YYYY-MM-DD HH24:MI" UTC"') END;
            IF limited.limited ->> 'usd' IS NOT NULL AND call.estimate = 'unknown' THEN
                label := format('a model whose price is known, because %s is in USD', label);
            ELSIF counter.usd + counter.reserved_usd > (limited.limited ->> 'usd')::numeric THEN
                label := format('%s USD at most for this call; less of %s is left', call.estimate, label);
            ELSIF counter.tokens + counter.reserved_tokens > (limited.limited ->> 'tokens')::numeric THEN
                label := format('%s tokens at most for this call; less of %s is left', call.tokens, label);
            ELSE
                INSERT INTO organisation_reservations (project, call_id, limit_id, since, usd, tokens)
                VALUES (p_project, call.id, limited.limit_id, limited.since,
                        coalesce(nullif(call.estimate, 'unknown')::numeric, 0), call.tokens);
                CONTINUE;
            END IF;
            RAISE EXCEPTION '%', label USING ERRCODE = 'CP014', DETAIL = jsonb_build_array(limited.limit_id, call.made_at);
        END LOOP;
    END LOOP;
END $$;

-- Notes that a limit of the organisation refused a call made at a time.
CREATE FUNCTION note_refused_call(p_project text, p_id text, p_made_at timestamptz) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT open_organisation_counter(l.limit_id, l.limit_version, l.set_at, l.limited, l.since)
    FROM organisation_limits_at(p_project, p_made_at) AS l WHERE l.limit_id = p_id;
    UPDATE organisation_spending AS s SET refused_at = now()
    FROM organisation_limits_at(p_project, p_made_at) AS l
    WHERE l.limit_id = p_id AND s.limit_id = p_id AND s.since = l.since;
$$;

-- The limits of the organisation at a time, with what the projects have used of each: those of a project, or all without one.
CREATE FUNCTION organisation_use(p_project text, p_at timestamptz)
RETURNS TABLE (limit_id text, limited jsonb, refused_at timestamptz, calling_project text, usd numeric, tokens numeric)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT l.limit_id, l.limited, s.refused_at, c.calling_project, coalesce(sum(nullif(c.usd, 'unknown')::numeric), 0),
           coalesce(sum(c.tokens), 0)
    FROM organisation_limits_at(p_project, p_at) AS l
    LEFT JOIN organisation_spending AS s
        ON s.limit_id = l.limit_id AND s.since = l.since AND s.version = l.limit_version
    LEFT JOIN LATERAL organisation_calls(l.limited, l.since) AS c ON true
    GROUP BY l.limit_id, l.limited, s.refused_at, l.since, c.calling_project
    ORDER BY l.limit_id, c.calling_project
$$;

CREATE FUNCTION commit_steps(
    p_epoch bigint, p_project text, p_steps step_row[], p_cancelled cancelled_timer_row[], p_writes write_row[],
    p_messages message_row[], p_vectors vector_row[], p_embeddings embedding_row[]
) RETURNS TABLE (
    message_id uuid, message_seq bigint, message_version int, error_code text, error_text text, error_detail text
) LANGUAGE plpgsql AS $$
DECLARE
    rows_written int := cardinality(p_writes);
    wrote int := coalesce((p_steps[cardinality(p_steps)]).writes_before + (p_steps[cardinality(p_steps)]).writes, 0);
    sent int := coalesce((p_steps[cardinality(p_steps)]).messages_before + (p_steps[cardinality(p_steps)]).messages, 0);
    commits uuid[] := ARRAY(SELECT s.id FROM unnest(p_steps) WITH ORDINALITY AS s ORDER BY ordinality);
    base bigint;
    head bigint;
    done int;
    fault record;
    models_now record;
    rows_now bigint[];
BEGIN
    PERFORM set_config('counterpoint.project', p_project, true);
    PERFORM 1 FROM lease WHERE shard = '0' AND epoch = p_epoch FOR SHARE;
    IF NOT FOUND THEN RAISE EXCEPTION 'lease lost' USING ERRCODE = 'CP001'; END IF;

    SELECT s.consumer, s.step, s.fence, i.fence AS known_fence, i.step = s.step AS known, i.last INTO fault
    FROM unnest(p_steps) AS s
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
    FROM unnest(p_steps) AS s
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

    IF EXISTS (SELECT FROM unnest(p_writes) AS w WHERE w.store = 'model_calls') THEN
        PERFORM charge_organisation(p_project, p_writes);
    END IF;

    INSERT INTO projects (project, last_seq) VALUES (p_project, wrote + sent)
    ON CONFLICT (project) DO UPDATE SET last_seq = projects.last_seq + wrote + sent
    RETURNING last_seq - wrote - sent INTO base;

    IF wrote > 0 THEN
        INSERT INTO records (project, store, id, version, seq, task_id, author, label, integrity, body, sha256,
                             schema_version, commit_id, decision_id, decision_seq, decision_sha256, decision)
        SELECT p_project, w.store, w.id, 1, base + w.number, w.task, w.author, w.label, w.integrity, w.body::jsonb, w.sha,
               w.schema, commits[w.step], w.decision_id, base + w.decision_number, w.decision_sha, w.decision::jsonb
        FROM unnest(p_writes) AS w
        WHERE w.expect = 0
          AND (w.store <> 'decisions' OR NOT EXISTS (
              SELECT FROM records WHERE project = p_project AND decision_id = w.id
              UNION ALL
              SELECT FROM unnest(p_writes) AS other WHERE other.decision_id = w.id))
          AND (w.decision_id IS NULL OR NOT EXISTS (
              SELECT FROM records WHERE project = p_project AND store = 'decisions' AND id = w.decision_id))
        ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS done = ROW_COUNT;
        IF done < rows_written THEN
            PERFORM separate_decisions(p_project, p_writes);
            SELECT w.store, w.id, w.schema, r.schema_version INTO fault
            FROM unnest(p_writes) AS w
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
                   r.schema_version, r.body, r.sha256, r.commit_id, r.at, r.changed, base + w.number
            FROM unnest(p_writes) AS w
            CROSS JOIN LATERAL (
                SELECT * FROM records WHERE project = p_project AND store = w.store AND id = w.id LIMIT 1) AS r
            WHERE w.expect > 0 AND r.version = w.expect
            ON CONFLICT DO NOTHING;
            WITH changed AS (
                UPDATE records r
                SET version = w.expect + 1, seq = coalesce(w.place, base + w.number),
                    changed = CASE WHEN w.place IS NOT NULL THEN base + w.number END, task_id = w.task,
                    author = w.author, label = w.label, integrity = w.integrity, body = w.body::jsonb, sha256 = w.sha,
                    schema_version = w.schema, commit_id = commits[w.step], at = coalesce(w.at, now())
                FROM unnest(p_writes) AS w
                CROSS JOIN LATERAL (
                    SELECT ctid FROM records
                    WHERE project = p_project AND store = w.store AND id = w.id AND version = w.expect
                    FOR UPDATE LIMIT 1) AS found
                WHERE r.ctid = found.ctid AND w.expect > 0
                RETURNING 1)
            SELECT done + count(*) INTO done FROM changed;
        END IF;
        IF done < rows_written THEN
            SELECT w.store, w.id, w.expect, r.version, w.expect = 0 AND r.version > 0 AND r.body IS NULL AS deleted INTO fault
            FROM (
                SELECT store, id, expect FROM unnest(p_writes)
                UNION ALL
                SELECT 'decisions', decision_id, 0 FROM unnest(p_writes) WHERE decision_id IS NOT NULL) AS w
            LEFT JOIN LATERAL (
                SELECT * FROM current_records WHERE project = p_project AND store = w.store AND id = w.id LIMIT 1) AS r ON true
            WHERE r.version IS DISTINCT FROM w.expect + 1 OR r.commit_id <> ALL (commits) LIMIT 1;
            IF fault.deleted THEN
                RAISE EXCEPTION '%/%', fault.store, fault.id USING ERRCODE = 'CP012', DETAIL = fault.version;
            END IF;
            RAISE EXCEPTION '%/%', fault.store, fault.id
                USING ERRCODE = 'CP007', DETAIL = format('expected version %s, found %s', fault.expect, coalesce(fault.version, 0));
        END IF;
    END IF;

    -- The name of an active principal is unique. Memory itself may insert an administrator with the name of an older one.
    IF p_project = '_system' THEN
        SELECT w.store, w.id INTO fault
        FROM unnest(p_writes) AS w
        JOIN records r ON r.project = p_project AND r.store = 'principals' AND r.id <> w.id
            AND r.body ->> 'name' = w.body::jsonb ->> 'name' AND r.body ->> 'revoked_at' IS NULL
        WHERE w.store = 'principals' AND w.body::jsonb ->> 'revoked_at' IS NULL AND (p_steps[w.step]).consumer <> 'memory'
        LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION '%/%', fault.store, fault.id
                USING ERRCODE = 'CP007', DETAIL = 'its name is that of another principal';
        END IF;
    END IF;

    IF cardinality(p_vectors) > 0 THEN
        -- The lock makes a change of the model wait for this commit. Texts embedded before the change are embedded again.
        SELECT m.active, m.other INTO models_now FROM models m FOR SHARE;
        IF models_now.active IS NOT NULL
                AND (SELECT count(*) FROM unnest(p_embeddings) AS e WHERE e.model = models_now.active)
                    <> cardinality(p_vectors) THEN
            RAISE EXCEPTION 'embedded by another model than %', models_now.active USING ERRCODE = 'CP013';
        END IF;
        WITH placed AS (
            INSERT INTO vectors (project, store, id, version, source, label, lexemes, type, names, chars)
            SELECT p_project, v.store, v.id, v.version, v.source, v.label,
                   to_tsvector('english', v.words) || array_to_tsvector(v.exact), v.type, v.names, v.chars
            FROM unnest(p_vectors) AS v
            ON CONFLICT (project, store, id) DO UPDATE
            SET version = excluded.version, source = excluded.source, label = excluded.label, model = NULL,
                lexemes = excluded.lexemes, embedding = NULL, type = excluded.type, names = excluded.names,
                chars = excluded.chars
            RETURNING row, store, id)
        SELECT array_agg(placed.row ORDER BY v.ordinality) INTO rows_now
        FROM unnest(p_vectors) WITH ORDINALITY AS v JOIN placed USING (store, id);
        -- Delete the embeddings of earlier versions.
        DELETE FROM meanings m USING unnest(rows_now) AS written(row)
        CROSS JOIN LATERAL (SELECT ctid FROM meanings WHERE row = written.row OFFSET 0) AS found
        WHERE m.ctid = found.ctid;
        INSERT INTO meanings (row, model, project, store, version, label, embedding)
        SELECT rows_now[e.vector], e.model, p_project, v.store, v.version, v.label, e.embedding::vector
        FROM unnest(p_embeddings) AS e JOIN unnest(p_vectors) WITH ORDINALITY AS v ON v.ordinality = e.vector
        WHERE models_now.active IS NULL OR e.model IN (models_now.active, models_now.other);
    END IF;
    IF EXISTS (SELECT FROM unnest(p_writes) AS w WHERE w.body IS NULL) THEN
        DELETE FROM vectors v USING unnest(p_writes) AS w
        CROSS JOIN LATERAL (
            SELECT ctid FROM vectors WHERE project = p_project AND store = w.store AND id = w.id FOR UPDATE LIMIT 1) AS found
        WHERE w.body IS NULL AND v.ctid = found.ctid;
    END IF;

    IF cardinality(p_cancelled) > 0 THEN
        WITH cancelled AS (
            DELETE FROM pending USING unnest(p_cancelled) AS c
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
                                  label, integrity, inbound_id, commit_id, due_at, timer, traceparent, structured,
                                  records, parts, decision_ids, decision_seqs, decision_records, decision_subjects)
            SELECT p_project, base + wrote + m.number, m.id, m.type, m.subject, m.task,
                   CASE WHEN m.versioned THEN coalesce(r.version, 0) END, m.audience, m.body, s.consumer, m.label,
                   m.integrity, s.message, s.id, m.due, m.timer, s.trace, m.structured,
                   (SELECT array_agg(base + w ORDER BY w) FROM unnest(m.records) AS w), m.parts, m.decision_ids,
                   (SELECT array_agg(base + wrote + n ORDER BY n) FROM unnest(m.decision_numbers) AS n),
                   (SELECT array_agg(base + w ORDER BY n) FROM unnest(m.decision_numbers, m.decision_records) AS d (n, w)),
                   m.decision_subjects
            FROM unnest(p_messages) AS m
            JOIN unnest(p_steps) WITH ORDINALITY AS s ON s.ordinality = m.step
            LEFT JOIN LATERAL (
                SELECT version FROM records
                WHERE m.versioned AND project = p_project AND store = 'tasks' AND id = m.task LIMIT 1) AS r ON true
            RETURNING id, seq, task_version),
        waiting AS (
            INSERT INTO pending (message_id, project, due_at, timer)
            SELECT id, p_project, coalesce(due, now()), due IS NOT NULL FROM unnest(p_messages) WHERE NOT live)
        SELECT id, seq, task_version, NULL::text, NULL::text, NULL::text FROM log
        UNION ALL
        SELECT d.id, base + wrote + d.number, NULL::int, NULL::text, NULL::text, NULL::text
        FROM unnest(p_messages) AS m CROSS JOIN LATERAL unnest(m.decision_ids, m.decision_numbers) AS d (id, number);
    END IF;

    INSERT INTO inbox (project, consumer, message_id, step, last, fence, outcome, reply)
    SELECT p_project, t.consumer, t.message, t.step, t.last, t.fence, t.outcome, t.reply::jsonb
    FROM unnest(p_steps) AS t
    WHERE t.step <> '';

    INSERT INTO read_sets (project, commit_id, cause, reads, packed)
    SELECT p_project, t.id, t.cause, coalesce(t.reads, '[]')::jsonb, t.packed FROM unnest(p_steps) AS t
    WHERE t.reads IS NOT NULL OR t.cause IS NOT NULL;

    -- A leaf begins with `placed`: the sequence numbers before its first record and before its first message, and the time.
    -- It has the next position of the log, and the hash of the previous leaf of its task; the steps of a call are about
    -- different tasks.
    UPDATE audit_head SET position = position + cardinality(p_steps) WHERE shard = '0'
    RETURNING position - cardinality(p_steps) INTO head;
    INSERT INTO audit (project, id, kind, task_id, body, packed, salt, seq, position, previous, leaf)
    SELECT p_project, l.id, l.kind, l.task, CASE WHEN l.packed IS NULL THEN l.body END, l.packed, l.salt, l.seq, head + l.n,
           before.leaf, sha256(l.salt || coalesce(before.leaf, '') || convert_to(l.body, 'UTF8'))
    FROM (
        SELECT t.ordinality AS n, t.id, t.kind, t.task, t.salt,
               format('{"placed":[%s,%s,%s],', place.records, place.messages, place.at) || substr(t.audit, 2) AS body,
               int8send(place.records) || int8send(place.messages) || int8send(place.at) || t.packed_audit AS packed,
               place.records + t.writes AS seq
        FROM unnest(p_steps) WITH ORDINALITY AS t
        CROSS JOIN LATERAL (
            SELECT base + t.writes_before AS records, base + wrote + t.messages_before AS messages,
                   (extract(epoch FROM now()) * 1000000)::bigint AS at) AS place OFFSET 0) AS l
    LEFT JOIN LATERAL (
        SELECT a.leaf FROM audit a
        WHERE l.task IS NOT NULL AND a.project = p_project AND a.task_id = l.task AND a.position IS NOT NULL
        ORDER BY a.position DESC LIMIT 1) AS before ON true
    ORDER BY l.n;
EXCEPTION
    WHEN SQLSTATE 'CP002' OR SQLSTATE 'CP003' OR SQLSTATE 'CP004' OR SQLSTATE 'CP005' OR SQLSTATE 'CP006'
        OR SQLSTATE 'CP007' OR SQLSTATE 'CP011' OR SQLSTATE 'CP012' OR SQLSTATE 'CP013' OR SQLSTATE 'CP014' THEN
        error_code := SQLSTATE;
        GET STACKED DIAGNOSTICS error_text = MESSAGE_TEXT, error_detail = PG_EXCEPTION_DETAIL;
        IF error_code = 'CP014' THEN
            PERFORM note_refused_call(p_project, error_detail::jsonb ->> 0, (error_detail::jsonb ->> 1)::timestamptz);
        END IF;
        RETURN NEXT;
END $$;

-- Assigns positions to leaves that have none, which only earlier releases write, in the order of their arrival, and links
-- each to the previous leaf of its task. Returns the head. A leaf with a position is never changed; the login of memory
-- has no UPDATE right on `audit`. The lock on the head excludes a second sequencer, and commits. With asynchronous
-- commit, a crash may lose these positions, which are then assigned again; the sequencer flushes them to disk before it
-- signs them.
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

-- Returns the hashes of the leaves of all projects, by position, without content.
CREATE FUNCTION leaf_hashes(p_after bigint, p_limit int) RETURNS TABLE (leaf_position bigint, leaf_hash bytea)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT position, leaf FROM audit WHERE position > p_after ORDER BY position LIMIT p_limit
$$;

-- Returns the last position in a project's order at a time; of the session's project and the shared one.
CREATE FUNCTION position_at_time(p_project text, p_at timestamptz) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT seq FROM audit
    WHERE project = p_project AND p_project IN (current_setting('counterpoint.project'), 'shared')
        AND at <= p_at AND seq IS NOT NULL
    ORDER BY at DESC, seq DESC LIMIT 1
$$;

-- Returns due messages that are not known to be on the bus, oldest first. Other messages than timers must be older than
-- `p_older_than`.
CREATE FUNCTION take_due(p_older_than interval, p_limit int)
RETURNS TABLE (message_id uuid, project text) LANGUAGE sql AS $$
    SELECT message_id, project FROM pending
    WHERE due_at <= now() - CASE WHEN timer THEN interval '0' ELSE p_older_than END
    ORDER BY due_at LIMIT p_limit
$$;

-- Makes messages pending again that a stream has lost and that their consumers have not finished; returns their number.
-- Lost messages are those sent before `p_lost_before` or after `p_lost_after` (NULL: no such bound). Messages older than
-- the horizon are not checked; the age of a timer counts from its due time.
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

-- The commits of the session's project that read some items, each with the indexes of these items: those that used
-- them, that named them (as sources, or as candidates), or that were shown them. Items that a message carried are sources
-- of its sender's commit, which is the cause.
-- Only hash joins and bitmap scans: without statistics the planner would compare each with each, or compute the keys of
-- all rows.
CREATE FUNCTION readers_of(p_stores text[], p_ids text[], p_versions int[], p_reach text, p_shared boolean)
RETURNS TABLE (reader uuid, items int[]) LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_indexscan = off SET enable_mergejoin = off SET enable_nestloop = off AS $$
    WITH given AS MATERIALIZED (
        SELECT store, id, version, (n - 1)::int AS n
        FROM unnest(p_stores, p_ids, p_versions) WITH ORDINALITY AS each (store, id, version, n)),
    -- Key by key: one search for many compares each row that it finds with all of them.
    readers AS MATERIALIZED (
        SELECT commit_id, cause, reads FROM read_sets WHERE ctid = ANY (ARRAY(
            SELECT DISTINCT found.ctid FROM unnest(read_keys(
                current_setting('counterpoint.project'), (SELECT jsonb_agg(jsonb_build_array(store, id)) FROM given), NULL
            )) AS sought (key)
            CROSS JOIN LATERAL (
                SELECT ctid FROM read_sets
                WHERE read_keys(project, reads, cause) @> ARRAY[sought.key] OFFSET 0) AS found))
            AND project = current_setting('counterpoint.project')),
    read AS MATERIALIZED (
        SELECT commit_id, item FROM readers CROSS JOIN jsonb_array_elements(reads) AS item
        WHERE item ->> 4 IS DISTINCT FROM 'carried'),
    edges AS (
        SELECT commit_id, n, coalesce(item ->> 4 IN ('cited', 'quoted'), false) AS named,
               coalesce(item ->> 4 = 'cited', false) AS used, coalesce((item ->> 5)::boolean, false) AS shared
        FROM read JOIN given ON id = item ->> 1
        WHERE (store, version) IS NOT DISTINCT FROM (item ->> 0, (item ->> 2)::int)
        UNION ALL
        -- A commit whose result was worked on is among the reads.
        SELECT commit_id, n, true, false, false FROM readers JOIN given ON store = 'commits' AND id = cause::text
        WHERE NOT reads @> '[["commits"]]'
        UNION ALL
        SELECT commit_id, n, named, used, shared FROM given CROSS JOIN LATERAL (
            SELECT commit_id, cited AS named, coalesce(used, cited) AS used, shared FROM sources s
            WHERE project = current_setting('counterpoint.project')
                AND store = given.store AND id = given.id AND version = given.version
                AND (SELECT n FROM read_sets r WHERE r.project = s.project AND r.commit_id = s.commit_id) IS NULL
            OFFSET 0) AS found)
    SELECT commit_id, array_agg(DISTINCT n) FROM edges
    WHERE shared = p_shared AND CASE p_reach WHEN 'used' THEN used WHEN 'named' THEN named ELSE true END
    GROUP BY commit_id
$$;

-- Erases the content of the records that an erasure's commit deleted: every version in `history`, and the leaves that
-- the leaf of this commit names, with the messages of their commits. Later leaves about the same tasks are not named and
-- stay. Idempotent. Returns the number of erased versions.
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
    -- A message without an audience is never sent again.
    UPDATE messages SET body = '{}', audience = '{}', records = NULL, parts = NULL, decision_ids = NULL,
        decision_seqs = NULL, decision_records = NULL, decision_subjects = NULL
    WHERE project = p_project AND commit_id = ANY (commits);
    UPDATE audit SET body = NULL, packed = NULL, salt = NULL
    WHERE project = p_project AND position = ANY (named) AND salt IS NOT NULL;
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

-- The inspector's role sees one project at a time; these functions see all.
REVOKE EXECUTE ON FUNCTION organisation_limits_at(text, timestamptz), organisation_calls(jsonb, timestamptz),
    open_organisation_counter(text, int, timestamptz, jsonb, timestamptz), charge_organisation(text, write_row[]),
    note_refused_call(text, text, timestamptz), organisation_use(text, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION charge_organisation(text, write_row[]), note_refused_call(text, text, timestamptz),
    organisation_use(text, timestamptz) TO counterpoint_memory;

-- What a message repeats of records of its commit is stored in these alone: `records` are their positions, ascending, and
-- `parts` says which fields they have; without it a record has the whole body. See `record/message_bodies.py`.
ALTER TABLE messages ADD records bigint[], ADD parts text;

CREATE FUNCTION repeated_bodies(p_project text, p_commit uuid, p_records bigint[]) RETURNS text LANGUAGE sql STABLE STRICT AS $$
    SELECT jsonb_agg(body ORDER BY seq)::text FROM (
        SELECT seq, body FROM records WHERE project = p_project AND commit_id = p_commit AND seq = ANY (p_records)
        UNION ALL
        SELECT seq, body FROM history WHERE project = p_project AND commit_id = p_commit AND seq = ANY (p_records)) AS repeated
$$;

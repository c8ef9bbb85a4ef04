-- Read sets are kept for ever and searched by item. `sources`, which repeated each read set row by row, gets no more rows;
-- its rows stand for the read sets that an earlier release deleted.

-- A key for each item of a project and for the cause. Different items may have the same key.
CREATE FUNCTION read_keys(project text, reads jsonb, cause uuid) RETURNS int[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT array_agg(DISTINCT ('x' || encode(substr(sha256(convert_to(project || '/' || id, 'UTF8')), 1, 4), 'hex'))::bit(32)::int)
    FROM (
        SELECT item ->> 1 FROM jsonb_array_elements(CASE jsonb_typeof(reads) WHEN 'array' THEN reads ELSE '[]' END) AS item
        WHERE item ->> 4 IS DISTINCT FROM 'carried'
        UNION ALL SELECT cause::text) AS of_item (id)
    WHERE id IS NOT NULL
$$;
CREATE INDEX read_sets_by_item ON read_sets USING gin (read_keys(project, reads, cause)) WITH (fastupdate = off);
DROP INDEX read_sets_by_age;

-- `readers_of` runs as the owner, because row-level security keeps the search by key from using the index. It returns
-- only rows of the session's project.
CREATE POLICY finding_readers ON read_sets FOR SELECT TO CURRENT_USER USING (true);
CREATE POLICY finding_readers ON sources FOR SELECT TO CURRENT_USER USING (true);

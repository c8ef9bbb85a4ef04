-- Statements of the record: its schema, its lease, and reads of records by key, list and walk.

-- name: create_migrations
CREATE TABLE IF NOT EXISTS migrations (name text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())

-- name: expand_migrations
-- `oldest`: the migration from which on services run on the schema after this one. Null: those of all releases do.
ALTER TABLE migrations ADD COLUMN IF NOT EXISTS oldest text

-- name: grant_migrations
GRANT SELECT ON migrations TO counterpoint_memory

-- name: add_migration
INSERT INTO migrations (name, oldest) VALUES ($1, $2)

-- name: applied_migrations
SELECT name, oldest FROM migrations

-- name: delete_old_functions
-- All but the newest of the older schemas of functions: services of the last release may still call that one.
DELETE FROM migrations WHERE name IN (
    SELECT name FROM migrations WHERE starts_with(name, 'functions_') AND name <> $1 ORDER BY at DESC OFFSET 1)
RETURNING name

-- name: touch_migration
INSERT INTO migrations (name) VALUES ($1) ON CONFLICT (name) DO UPDATE SET at = now()

-- name: next_epoch
-- The epoch stays if no other process has held the lease meanwhile: commits in progress are still of this process.
UPDATE lease SET epoch = epoch + (holder IS DISTINCT FROM $1 OR epoch <> $2)::int, holder = $1, since = now()
WHERE shard = '0' RETURNING epoch

-- name: all_projects
SELECT project FROM projects ORDER BY project

-- name: set_project
SELECT set_config('counterpoint.project', $1, $2)

-- name: records_by_key
-- Records of project $1 by store and id; where it has none and the store is shared, the shared one. `relation` is
-- `records`, or the view `current_records` if decisions are among the stores. The keys are not in arrays, because a
-- statement on arrays is planned anew each time, which takes longer than it does.
SELECT found.* FROM (VALUES {keys}) AS wanted (store, id, shared)
CROSS JOIN LATERAL (
    SELECT project, store, id, version, seq, author, label, integrity, schema_version, body, at FROM {relation}
    WHERE project IN ($1, CASE WHEN wanted.shared THEN 'shared' ELSE $1 END)
        AND store = wanted.store AND id = wanted.id AND body IS NOT NULL
    ORDER BY project = $1 DESC LIMIT 1) AS found

-- name: list_of_project
-- Part of a list: one project's records, because an index has no order over several projects.
(SELECT project, store, id, version, seq, author, label, integrity, schema_version, body, at FROM {relation}
WHERE project = {project} AND {conditions} ORDER BY seq {direction} LIMIT {limit})

-- name: list_of_projects
SELECT * FROM ({parts}) AS of_each_project ORDER BY seq {direction} LIMIT {limit}

-- name: part
SELECT {number} AS part, of_part.* FROM ({statement}) AS of_part

-- name: walk_one_way
-- Edges of store $2 reached from nodes $4 (keys $3) in at most $5 hops, the nearest $6 of them, none written after the
-- position $7; `source` and `target` are the ends of an edge in the direction of the walk.
WITH RECURSIVE reached(id, node, key, hops) AS (
    SELECT r.id, r.body ->> '{target}', r.by_{target}, 1 FROM records r
    WHERE r.project = $1 AND r.store = $2 AND r.by_{source} = ANY ($3) AND r.body ->> '{source}' = ANY ($4)
        AND ($7::bigint IS NULL OR r.seq <= $7)
    UNION
    SELECT r.id, r.body ->> '{target}', r.by_{target}, w.hops + 1 FROM reached w
    JOIN records r ON r.project = $1 AND r.store = $2 AND r.by_{source} = w.key AND r.body ->> '{source}' = w.node
    WHERE w.hops < $5 AND ($7::bigint IS NULL OR r.seq <= $7))
SELECT r.project, r.store, r.id, r.version, r.seq, r.author, r.label, r.integrity, r.schema_version, r.body, r.at, hops
FROM records r JOIN (
    SELECT id AS reached_id, min(hops) AS hops FROM reached GROUP BY id ORDER BY 2 LIMIT $6) AS nearest
ON r.project = $1 AND r.store = $2 AND r.id = reached_id ORDER BY hops, id

-- name: walk_both_ways
WITH RECURSIVE reached(id, node, hops) AS (
    SELECT NULL::text, node, 0 FROM unnest($4::text[]) AS node
    UNION
    SELECT r.id, r.other, w.hops + 1
    FROM reached w CROSS JOIN LATERAL (
        SELECT id, body ->> 'target' AS other FROM records
        WHERE project = $1 AND store = $2 AND by_source = left(w.node, 200) AND body ->> 'source' = w.node
            AND ($7::bigint IS NULL OR seq <= $7)
        UNION ALL
        SELECT id, body ->> 'source' AS other FROM records
        WHERE project = $1 AND store = $2 AND by_target = left(w.node, 200) AND body ->> 'target' = w.node
            AND ($7::bigint IS NULL OR seq <= $7)
        OFFSET 0) AS r
    WHERE w.hops < $5 AND cardinality($3::text[]) > 0)
SELECT r.project, r.store, r.id, r.version, r.seq, r.author, r.label, r.integrity, r.schema_version, r.body, r.at, hops
FROM records r JOIN (
    SELECT id AS reached_id, min(hops) AS hops FROM reached WHERE id IS NOT NULL GROUP BY id ORDER BY 2 LIMIT $6
) AS nearest ON r.project = $1 AND r.store = $2 AND r.id = reached_id ORDER BY hops, id

-- name: matching_vectors
-- Rows of vectors whose records match the conditions of a search.
SELECT row FROM vectors WHERE project IN ({project}, 'shared') AND store = $1 AND (project, id) IN (
    SELECT project, id FROM records WHERE project IN ({project}, 'shared') AND {conditions} AND body IS NOT NULL)

-- name: of_matching_documents
-- Condition on chunks: their documents contain this metadata.
(project, body ->> 'document_id') IN (
    SELECT project, id FROM records
    WHERE project IN ({project}, 'shared') AND store = 'documents' AND body @> {metadata})

-- name: named_in
-- Condition on records: a text without case and punctuation contains one of their names.
EXISTS (
    SELECT FROM jsonb_array_elements_text(
        jsonb_build_array(body -> 'name') || coalesce(body -> 'aliases', '[]') || coalesce(body -> 'terms', '[]')
    ) AS known (name)
    WHERE position(' ' || btrim(regexp_replace(lower(name), '[^a-z0-9]+', ' ', 'g')) || ' ' IN {text}) > 0)

-- name: has_installation
SELECT to_regclass('public.installation') IS NOT NULL

-- name: installation
SELECT id FROM installation

-- name: claim_installation
INSERT INTO installation (id) VALUES ($1) ON CONFLICT (one) DO NOTHING

-- name: server_facts
SELECT current_setting('server_version_num')::int AS version, pg_is_in_recovery() AS standby,
    clock_timestamp() AS now, getdatabaseencoding() AS encoding,
    (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS superuser,
    (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS vector,
    (SELECT max(version) FROM pg_available_extension_versions WHERE name = 'vector') AS vector_available,
    has_database_privilege(current_database(), 'CREATE') AS may_create_schemas,
    has_schema_privilege('public', 'CREATE') AS may_create_tables

-- name: role_facts
SELECT rolsuper AS superuser, rolbypassrls AS bypasses, pg_has_role('counterpoint_owner', 'MEMBER') AS owner
FROM pg_roles WHERE rolname = current_user

-- name: count_tables
SELECT count(*) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind = 'r' AND nspname = 'public'

-- name: set_settings
SELECT set_config(name, value, false) FROM unnest($1::text[], $2::text[]) AS setting (name, value)

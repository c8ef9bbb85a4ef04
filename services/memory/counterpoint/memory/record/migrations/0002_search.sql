-- Indexes that row-level security can use: it lets a condition down to an index only when its operators are leakproof,
-- as equality of plain columns is and matching, containment and extraction of fields are not.

-- The fields that records are listed by, as columns. The first 200 characters, for an index row has a limit; who
-- compares looks at the whole as well.
DROP INDEX tasks_by_state, attempts_by_signature, chunks_by_document, edges_by_source, edges_by_target, runs_by_parent,
    runs_by_root, runs_by_job, jobs_by_namespace, incidents_by_content, incidents_by_job;
ALTER TABLE records
    ADD by_state           text GENERATED ALWAYS AS (left(body ->> 'state', 200)) STORED,
    ADD by_error_signature text GENERATED ALWAYS AS (left(body ->> 'error_signature', 200)) STORED,
    ADD by_source          text GENERATED ALWAYS AS (left(body ->> 'source', 200)) STORED,
    ADD by_target          text GENERATED ALWAYS AS (left(body ->> 'target', 200)) STORED,
    ADD by_parent_run_id   text GENERATED ALWAYS AS (left(body ->> 'parent_run_id', 200)) STORED,
    ADD by_root_run_id     text GENERATED ALWAYS AS (left(body ->> 'root_run_id', 200)) STORED,
    ADD by_job             text GENERATED ALWAYS AS (left(body ->> 'job', 200)) STORED,
    ADD by_namespace       text GENERATED ALWAYS AS (left(body ->> 'namespace', 200)) STORED;
-- The functions of the release before copy whole rows into the history, column by column: as long as they may run, it
-- takes these too.
ALTER TABLE history ADD by_state text, ADD by_error_signature text, ADD by_source text, ADD by_target text,
    ADD by_parent_run_id text, ADD by_root_run_id text, ADD by_job text, ADD by_namespace text;
CREATE INDEX records_by_state ON records (project, store, by_state, seq) WHERE by_state IS NOT NULL;
CREATE INDEX records_by_error_signature ON records (project, store, by_error_signature, seq) WHERE by_error_signature IS NOT NULL;
CREATE INDEX records_by_source ON records (project, store, by_source, seq) WHERE by_source IS NOT NULL;
CREATE INDEX records_by_target ON records (project, store, by_target, seq) WHERE by_target IS NOT NULL;
CREATE INDEX records_by_parent_run_id ON records (project, store, by_parent_run_id, seq) WHERE by_parent_run_id IS NOT NULL;
CREATE INDEX records_by_root_run_id ON records (project, store, by_root_run_id, seq) WHERE by_root_run_id IS NOT NULL;
CREATE INDEX records_by_job ON records (project, store, by_job, seq) WHERE by_job IS NOT NULL;
CREATE INDEX records_by_namespace ON records (project, store, by_namespace, seq) WHERE by_namespace IS NOT NULL;

-- A projection of `vectors.lexemes`, kept by triggers: where each term occurs, how often and in how long a row (in
-- different terms); how many rows hold it; and how many rows there are, with the sum of their lengths.
ALTER TABLE vectors ADD row bigint GENERATED ALWAYS AS IDENTITY;
CREATE UNIQUE INDEX vectors_by_row ON vectors (row);
CREATE TABLE postings (
    project text NOT NULL,
    store   text NOT NULL,
    term    text NOT NULL,
    row     bigint NOT NULL,
    length  int NOT NULL,
    label   smallint NOT NULL,
    tf      smallint NOT NULL,
    PRIMARY KEY (project, store, term, row) INCLUDE (length, label, tf)
);
CREATE TABLE lexicon (
    project text NOT NULL,
    store   text NOT NULL,
    term    text NOT NULL,
    label   smallint NOT NULL,
    rows    bigint NOT NULL,
    PRIMARY KEY (project, store, term, label)
);
CREATE TABLE corpora (
    project text NOT NULL,
    store   text NOT NULL,
    label   smallint NOT NULL,
    rows    bigint NOT NULL,
    length  bigint NOT NULL,
    PRIMARY KEY (project, store, label)
);

DO $$
DECLARE fenced text;
BEGIN
    FOREACH fenced IN ARRAY ARRAY['postings', 'lexicon', 'corpora'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', fenced);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', fenced);
        EXECUTE format('CREATE POLICY own_project ON %I USING (project = current_setting(''counterpoint.project'', true))', fenced);
        EXECUTE format('CREATE POLICY shared_project ON %I FOR SELECT USING (project = ''shared'')', fenced);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO counterpoint_memory', fenced);
        EXECUTE format('GRANT SELECT ON %I TO counterpoint_inspect', fenced);
    END LOOP;
END $$;

CREATE FUNCTION postings_add() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO postings (project, store, term, row, length, label, tf)
    SELECT project, store, lexeme, row, length(lexemes), label, coalesce(cardinality(positions), 1)
    FROM written, unnest(lexemes);
    INSERT INTO lexicon AS known (project, store, term, label, rows)
    SELECT project, store, lexeme, label, count(*) FROM written, unnest(lexemes) GROUP BY 1, 2, 3, 4
    ON CONFLICT (project, store, term, label) DO UPDATE SET rows = known.rows + excluded.rows;
    INSERT INTO corpora AS known (project, store, label, rows, length)
    SELECT project, store, label, count(*), sum(length(lexemes)) FROM written GROUP BY 1, 2, 3
    ON CONFLICT (project, store, label) DO UPDATE
    SET rows = known.rows + excluded.rows, length = known.length + excluded.length;
    RETURN NULL;
END $$;

-- Posting by posting through the primary key: nothing is known of the size of `gone`, and a hash join would read the table.
CREATE FUNCTION postings_drop() RETURNS trigger LANGUAGE plpgsql
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    DELETE FROM postings p USING (SELECT project, store, row, lexeme FROM gone, unnest(lexemes)) AS lost
    WHERE p.project = lost.project AND p.store = lost.store AND p.term = lost.lexeme AND p.row = lost.row;
    UPDATE lexicon l SET rows = l.rows - lost.rows
    FROM (SELECT project, store, lexeme, label, count(*) AS rows FROM gone, unnest(lexemes) GROUP BY 1, 2, 3, 4) AS lost
    WHERE l.project = lost.project AND l.store = lost.store AND l.term = lost.lexeme AND l.label = lost.label;
    UPDATE corpora c SET rows = c.rows - lost.rows, length = c.length - lost.length
    FROM (
        SELECT project, store, label, count(*) AS rows, sum(length(lexemes)) AS length FROM gone GROUP BY 1, 2, 3
    ) AS lost
    WHERE c.project = lost.project AND c.store = lost.store AND c.label = lost.label;
    RETURN NULL;
END $$;

CREATE TRIGGER vectors_inserted AFTER INSERT ON vectors
    REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION postings_add();
CREATE TRIGGER vectors_updated_1 AFTER UPDATE ON vectors
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION postings_drop();
CREATE TRIGGER vectors_updated_2 AFTER UPDATE ON vectors
    REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION postings_add();
CREATE TRIGGER vectors_deleted AFTER DELETE ON vectors
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION postings_drop();

-- What is there already. The fence holds for the owner too: project by project.
DO $$
DECLARE each text;
BEGIN
    FOR each IN SELECT project FROM projects LOOP
        PERFORM set_config('counterpoint.project', each, true);
        INSERT INTO postings (project, store, term, row, length, label, tf)
        SELECT project, store, lexeme, row, length(lexemes), label, coalesce(cardinality(positions), 1)
        FROM vectors, unnest(lexemes) WHERE project = each;
        INSERT INTO lexicon (project, store, term, label, rows)
        SELECT project, store, term, label, count(*) FROM postings WHERE project = each GROUP BY 1, 2, 3, 4;
        INSERT INTO corpora (project, store, label, rows, length)
        SELECT project, store, label, count(*), sum(length(lexemes)) FROM vectors WHERE project = each GROUP BY 1, 2, 3;
    END LOOP;
    PERFORM set_config('counterpoint.project', '', true);
END $$;

-- Until autovacuum has looked at a young table, the planner takes every column for two hundred values, and a record's
-- id for no better a key than its store: it then reads whole stores. So it is told beforehand what is known. PostgreSQL
-- before 18 cannot be told; there it finds out for itself within minutes.
DO $$
BEGIN
    IF current_setting('server_version_num')::int >= 180000 THEN
        PERFORM pg_restore_attribute_stats('schemaname', 'public', 'relname', of_table, 'attname', of_column, 'inherited', false,
                                          'null_frac', absent, 'n_distinct', different)
        FROM (VALUES
            ('records', 'project', 0::real, 2::real),
            ('records', 'store', 0, 20),
            ('records', 'id', 0, -1),
            ('records', 'seq', 0, -1),
            ('records', 'task_id', 0.2, -0.02),
            ('records', 'by_state', 0.9, 8),
            ('records', 'by_error_signature', 0.9, -0.02),
            ('records', 'by_source', 0.5, -0.02),
            ('records', 'by_target', 0.9, -0.02),
            ('records', 'by_parent_run_id', 0.9, -0.02),
            ('records', 'by_root_run_id', 0.9, -0.02),
            ('records', 'by_job', 0.9, -0.02),
            ('records', 'by_namespace', 0.9, 100),
            ('vectors', 'project', 0, 2),
            ('vectors', 'store', 0, 2),
            ('vectors', 'id', 0, -1),
            ('vectors', 'row', 0, -1),
            ('postings', 'project', 0, 2),
            ('postings', 'store', 0, 2),
            ('postings', 'term', 0, -0.02),
            ('postings', 'row', 0, -0.02),
            ('lexicon', 'project', 0, 2),
            ('lexicon', 'store', 0, 2),
            ('lexicon', 'term', 0, -0.9)
        ) AS known (of_table, of_column, absent, different);
    END IF;
END $$;

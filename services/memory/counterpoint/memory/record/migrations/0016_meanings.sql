-- Vectors apart from the words: of a row as many as there are models in use, of any length.

-- The model that is searched by, for the whole installation, because the shared project is searched with every other;
-- and another one whose vectors are made beside (`next`) or kept to go back to (`before`).
CREATE TABLE models (
    one              boolean PRIMARY KEY DEFAULT true CHECK (one),
    active           text NOT NULL,
    dimensions       int NOT NULL,
    other            text CHECK (other <> active),
    other_dimensions int,
    other_is         text CHECK (other_is IN ('next', 'before')),
    since            timestamptz NOT NULL DEFAULT now(),
    CHECK (num_nulls(other, other_dimensions, other_is) IN (0, 3))
);
GRANT SELECT, INSERT, UPDATE ON models TO counterpoint_memory;
GRANT SELECT ON models TO counterpoint_inspect;

-- What a row means to a model: its vector at the row's version, or why the model was not asked.
CREATE TABLE meanings (
    row       bigint NOT NULL REFERENCES vectors (row) ON DELETE CASCADE,
    model     text NOT NULL,
    project   text NOT NULL,
    store     text NOT NULL,
    version   int NOT NULL,
    label     smallint NOT NULL,
    embedding vector,
    refused   text,
    PRIMARY KEY (row, model),
    CHECK ((embedding IS NULL) <> (refused IS NULL))
);
-- Up to 2,000 dimensions they stay in the row: an exact scan inside a project reads them all. No compression helps them.
ALTER TABLE meanings SET (toast_tuple_target = 8160);
ALTER TABLE meanings ALTER COLUMN embedding SET STORAGE EXTERNAL;
CREATE INDEX vectors_in_order ON vectors (project, row);
ALTER TABLE meanings ENABLE ROW LEVEL SECURITY;
ALTER TABLE meanings FORCE ROW LEVEL SECURITY;
CREATE POLICY own_project ON meanings USING (project = current_setting('counterpoint.project', true));
CREATE POLICY shared_project ON meanings FOR SELECT USING (project = 'shared');
GRANT SELECT, INSERT, UPDATE, DELETE ON meanings TO counterpoint_memory;
GRANT SELECT ON meanings TO counterpoint_inspect;

DO $$
DECLARE each text;
BEGIN
    CREATE TEMPORARY TABLE counted (model text, dimensions int, rows bigint) ON COMMIT DROP;
    FOR each IN SELECT project FROM projects LOOP
        PERFORM set_config('counterpoint.project', each, true);
        INSERT INTO meanings (row, model, project, store, version, label, embedding)
        SELECT row, model, project, store, version, label, embedding FROM vectors WHERE project = each;
        INSERT INTO counted SELECT model, vector_dims(embedding), count(*) FROM vectors WHERE project = each GROUP BY 1, 2;
    END LOOP;
    PERFORM set_config('counterpoint.project', '', true);
    INSERT INTO models (active, dimensions)
    SELECT model, dimensions FROM counted GROUP BY 1, 2 ORDER BY sum(rows) DESC LIMIT 1;
END $$;
CREATE INDEX meanings_by_model ON meanings (project, model, store);
CREATE INDEX meanings_refused ON meanings (project, model) WHERE refused IS NOT NULL;

-- The release before writes its vectors into the row itself, and leaves them there; they are dropped a release later.
ALTER TABLE vectors ALTER COLUMN model DROP NOT NULL, ALTER COLUMN embedding DROP NOT NULL;
CREATE FUNCTION meanings_of_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM meanings WHERE row = NEW.row;
    INSERT INTO meanings (row, model, project, store, version, label, embedding)
    VALUES (NEW.row, NEW.model, NEW.project, NEW.store, NEW.version, NEW.label, NEW.embedding);
    RETURN NULL;
END $$;
CREATE TRIGGER vectors_meant AFTER INSERT OR UPDATE ON vectors
    FOR EACH ROW WHEN (NEW.embedding IS NOT NULL) EXECUTE FUNCTION meanings_of_row();

ALTER TABLE embeddings ALTER COLUMN embedding TYPE vector, ALTER COLUMN embedding SET STORAGE EXTERNAL;

-- As in 0002: what the planner would only find out within minutes.
DO $$
BEGIN
    IF current_setting('server_version_num')::int >= 180000 THEN
        PERFORM pg_restore_attribute_stats('schemaname', 'public', 'relname', 'meanings', 'attname', of_column, 'inherited', false,
                                          'null_frac', 0::real, 'n_distinct', different)
        FROM (VALUES ('project', 2::real), ('model', 2), ('store', 2), ('row', -0.5)) AS known (of_column, different);
    END IF;
END $$;

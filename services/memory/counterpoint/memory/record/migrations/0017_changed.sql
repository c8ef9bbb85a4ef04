-- Which transaction last changed what a search of a store finds: who holds its vectors in RAM knows by it whether they
-- are still these.
ALTER TABLE corpora ADD changed xid8 NOT NULL DEFAULT pg_current_xact_id();

CREATE OR REPLACE FUNCTION postings_drop() RETURNS trigger LANGUAGE plpgsql
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    DELETE FROM postings p USING (SELECT project, store, row, lexeme FROM gone, unnest(lexemes)) AS lost
    WHERE p.project = lost.project AND p.store = lost.store AND p.term = lost.lexeme AND p.row = lost.row;
    UPDATE lexicon l SET rows = l.rows - lost.rows
    FROM (SELECT project, store, lexeme, label, count(*) AS rows FROM gone, unnest(lexemes) GROUP BY 1, 2, 3, 4) AS lost
    WHERE l.project = lost.project AND l.store = lost.store AND l.term = lost.lexeme AND l.label = lost.label;
    UPDATE corpora c SET rows = c.rows - lost.rows, length = c.length - lost.length, changed = pg_current_xact_id()
    FROM (
        SELECT project, store, label, count(*) AS rows, sum(length(lexemes)) AS length FROM gone GROUP BY 1, 2, 3
    ) AS lost
    WHERE c.project = lost.project AND c.store = lost.store AND c.label = lost.label;
    RETURN NULL;
END $$;

-- Of the model that is searched by: the vectors of another one are filled in beside without holding up commits.
CREATE FUNCTION meanings_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE corpora c SET changed = pg_current_xact_id()
    FROM (SELECT DISTINCT w.project, w.store, w.label FROM written w
          WHERE w.model = coalesce((SELECT active FROM models), w.model)) AS fresh
    WHERE c.project = fresh.project AND c.store = fresh.store AND c.label = fresh.label;
    RETURN NULL;
END $$;
CREATE TRIGGER meanings_inserted AFTER INSERT ON meanings
    REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION meanings_changed();

-- The setting is looked up once a statement, not once a row: a search reads thousands.
ALTER POLICY own_project ON meanings USING (project = (SELECT current_setting('counterpoint.project', true)));

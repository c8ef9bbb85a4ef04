-- Who holds the words of a store in RAM too has to know of a row that no model was asked about yet.
CREATE OR REPLACE FUNCTION postings_add() RETURNS trigger LANGUAGE plpgsql AS $$
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
    SET rows = known.rows + excluded.rows, length = known.length + excluded.length, changed = pg_current_xact_id();
    RETURN NULL;
END $$;

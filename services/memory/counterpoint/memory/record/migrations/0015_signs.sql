-- What else a search goes by: the type of a text, who said it, and how long it is. What was written before says nothing
-- of it until it is written again.
ALTER TABLE vectors
    ADD type  text NOT NULL DEFAULT '',
    ADD names text[] NOT NULL DEFAULT '{}',
    ADD chars int NOT NULL DEFAULT 0;

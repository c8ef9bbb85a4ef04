-- The answers of a delivery's requests, as far as the records do not have them: see `read_answers`.
ALTER TABLE read_sets ADD answers text;

-- The answers of a delivery's requests, as far as the records do not have them: see `_answers` in `commit/leaf.py`.
ALTER TABLE read_sets ADD answers text;

-- The body of a commit's leaf without the text that leaves share, and with ids and hashes in binary: see
-- `audit/packed_leaf.py`. A row with `packed` has no `body`; no compression helps it.
ALTER TABLE audit ADD packed bytea;
ALTER TABLE audit ALTER COLUMN packed SET STORAGE EXTERNAL;

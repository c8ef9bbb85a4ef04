-- A record that was taken out and put back has the place and the time that it had: `seq` and `at`. `changed` is then the
-- place of the commit that put it back, by which those who follow the record find it.
ALTER TABLE records ADD changed bigint;
ALTER TABLE history ADD changed bigint;
CREATE INDEX records_by_change ON records (project, store, changed) WHERE changed IS NOT NULL;

-- How far each project's log has been forgotten: the highest place of a message that is no longer kept.
ALTER TABLE projects ADD COLUMN forgotten_seq bigint NOT NULL DEFAULT 0;

-- How far the knowledge graph has looked through each project.
CREATE TABLE IF NOT EXISTS extracted (
    project text PRIMARY KEY,
    upto    bigint NOT NULL
);
GRANT SELECT, INSERT, UPDATE ON extracted TO counterpoint_memory;

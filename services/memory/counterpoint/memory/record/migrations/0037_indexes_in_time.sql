-- Indexes of ids begin with the id. Ids grow with time, so that new entries are added at the end of an index, whose pages
-- become full; after the project they were added in the middle, at the end of each project's part, where pages are split in
-- halves. Rows of a task share an entry whatever their store.
DROP INDEX records_by_task, records_by_commit, records_by_decision, history_by_commit, messages_by_task, audit_by_id,
    audit_by_task;
CREATE INDEX records_by_task ON records (task_id, project) WHERE task_id IS NOT NULL;
CREATE INDEX records_by_commit ON records (commit_id, project);
CREATE UNIQUE INDEX records_by_decision ON records (decision_id, project) WHERE decision_id IS NOT NULL;
CREATE INDEX history_by_commit ON history (commit_id, project);
CREATE INDEX messages_by_task ON messages (task_id, project) WHERE task_id IS NOT NULL;
CREATE INDEX audit_by_id ON audit (id, project);
CREATE INDEX audit_by_task ON audit (task_id, project, position) WHERE task_id IS NOT NULL;
ALTER TABLE read_sets DROP CONSTRAINT read_sets_pkey;
ALTER TABLE read_sets ADD PRIMARY KEY (commit_id, project);

-- What a project's log holds of a time, for reconciliation and for forgetting.
DROP INDEX messages_by_age;
CREATE INDEX messages_by_age ON messages (project, at);

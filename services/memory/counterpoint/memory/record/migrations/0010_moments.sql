-- The last place that was taken in a project's order by a time.

CREATE INDEX records_by_time ON records (project, at, seq);
CREATE INDEX history_by_time ON history (project, at, seq);

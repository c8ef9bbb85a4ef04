-- Spending under the limits of the organisation: one counter for each limit and period, over several projects. Only the
-- functions on it, which run as the owner, read or write these tables, so that no project sees the spending of another.
CREATE TABLE organisation_spending (
    limit_id        text NOT NULL,
    since           timestamptz NOT NULL,
    version         int NOT NULL,               -- of the limit's record; a counter of another version is counted anew
    usd             numeric NOT NULL,
    tokens          bigint NOT NULL,
    reserved_usd    numeric NOT NULL DEFAULT 0,
    reserved_tokens bigint NOT NULL DEFAULT 0,
    refused_at      timestamptz,
    PRIMARY KEY (limit_id, since)
);

-- Calls that have not ended, with what is reserved for each.
CREATE TABLE organisation_reservations (
    project  text NOT NULL,
    call_id  text NOT NULL,
    limit_id text NOT NULL,
    since    timestamptz NOT NULL,
    usd      numeric NOT NULL,
    tokens   bigint NOT NULL,
    PRIMARY KEY (project, call_id, limit_id, since),
    FOREIGN KEY (limit_id, since) REFERENCES organisation_spending ON DELETE CASCADE
);
CREATE INDEX organisation_reservations_by_limit ON organisation_reservations (limit_id, since);

CREATE POLICY organisation_limits ON records FOR SELECT TO CURRENT_USER
    USING (store = 'model_calls' OR (project = '_system' AND store = 'organisation_limits'));

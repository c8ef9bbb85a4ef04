-- How far the plans of agents have become documents.
ALTER TABLE extracted ADD planned bigint NOT NULL DEFAULT 0;

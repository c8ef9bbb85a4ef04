-- The record. Every table that holds content is fenced by project with forced row-level security:
-- the session says which project it works for, and sees no other row.

CREATE TABLE lease (
    shard  text PRIMARY KEY,
    epoch  bigint NOT NULL DEFAULT 0,
    holder text,
    since  timestamptz
);
INSERT INTO lease (shard) VALUES ('0');

CREATE TABLE projects (
    project    text PRIMARY KEY,
    last_seq   bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE records (
    project        text NOT NULL,
    store          text NOT NULL,
    id             text NOT NULL,
    version        int NOT NULL,
    seq            bigint NOT NULL,
    task_id        text,
    author         text NOT NULL,
    label          smallint NOT NULL,
    integrity      smallint NOT NULL,
    schema_version smallint NOT NULL DEFAULT 1,
    body           jsonb,                    -- absent: deleted
    sha256         bytea,
    commit_id      uuid NOT NULL,
    at             timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, store, id)
);
CREATE INDEX records_by_seq ON records (project, store, seq);
CREATE INDEX records_by_task ON records (project, store, task_id, seq) WHERE task_id IS NOT NULL;
CREATE INDEX tasks_by_state ON records (project, (body ->> 'state'), seq) WHERE store = 'tasks';
CREATE INDEX attempts_by_signature ON records (project, (body ->> 'error_signature'), seq) WHERE store = 'attempts';
CREATE INDEX chunks_by_document ON records (project, (body ->> 'document_id')) WHERE store = 'chunks';
CREATE INDEX edges_by_source ON records (project, (body ->> 'source')) WHERE store = 'edges';
CREATE INDEX runs_by_parent ON records (project, (body ->> 'parent_run_id')) WHERE store = 'runs';
CREATE INDEX runs_by_root ON records (project, (body ->> 'root_run_id')) WHERE store = 'runs';
CREATE INDEX runs_by_job ON records (project, (body ->> 'job'), seq) WHERE store = 'runs';
CREATE INDEX jobs_by_namespace ON records (project, (body ->> 'namespace'), seq) WHERE store = 'jobs';
CREATE INDEX incidents_by_content ON records USING gin (body jsonb_path_ops) WHERE store = 'incidents';
CREATE INDEX incidents_by_job ON records (project, (body ->> 'job'), seq) WHERE store = 'incidents';
CREATE INDEX edges_by_target ON records (project, (body ->> 'target')) WHERE store = 'edges';

-- Superseded versions, as they were.
CREATE TABLE history (LIKE records INCLUDING DEFAULTS, PRIMARY KEY (project, store, id, version));

-- Every message ever sent, in the order of its project; the bus may lose all it holds.
CREATE TABLE messages (
    project      text NOT NULL,
    seq          bigint NOT NULL,
    id           uuid NOT NULL UNIQUE,
    type         text NOT NULL,
    subject      text NOT NULL,
    task_id      text,
    task_version int,
    audience     text[] NOT NULL,
    body         text NOT NULL,
    sender       text NOT NULL,
    label        smallint NOT NULL,
    integrity    smallint NOT NULL,
    inbound_id   text NOT NULL,
    commit_id    uuid NOT NULL,
    due_at       timestamptz,
    timer        text,
    at           timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, seq)
);
CREATE INDEX messages_by_task ON messages (project, task_id, seq) WHERE task_id IS NOT NULL;
CREATE INDEX timers_by_name ON messages (project, timer) WHERE timer IS NOT NULL;
CREATE INDEX messages_by_age ON messages (at);

-- What is not known to have reached the bus. No content: the relay reads it across projects.
CREATE TABLE pending (
    message_id uuid PRIMARY KEY,
    project    text NOT NULL,
    due_at     timestamptz NOT NULL DEFAULT now(),
    timer      boolean NOT NULL
);
CREATE INDEX pending_by_due ON pending (due_at);

-- Messages that were put back to pending because their stream had lost them, and when.
CREATE TABLE restored (
    message_id uuid PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now()
);

-- How far each stream had come, by what it acknowledged; a stream that is behind this has lost its end.
CREATE TABLE streams (
    name     text PRIMARY KEY,
    life     bigint NOT NULL,
    last_seq bigint NOT NULL
);

-- Steps that were applied, by consumer and inbound message.
CREATE TABLE inbox (
    project    text NOT NULL,
    consumer   text NOT NULL,
    message_id text NOT NULL,
    step       text NOT NULL,
    last       boolean NOT NULL,
    fence      bigint NOT NULL,
    outcome    text NOT NULL,
    reply      jsonb NOT NULL,
    at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, consumer, message_id, step)
);
CREATE INDEX inbox_by_age ON inbox (at);

-- What each commit had read.
CREATE TABLE read_sets (
    project   text NOT NULL,
    commit_id uuid NOT NULL,
    reads     jsonb NOT NULL,
    at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, commit_id)
);
CREATE INDEX read_sets_by_age ON read_sets (at);

-- One leaf per commit and per refusal, each chained to the one before it.
CREATE TABLE audit (
    position bigint PRIMARY KEY,
    project  text NOT NULL,
    id       uuid NOT NULL,
    kind     text NOT NULL,
    task_id  text,
    body     text NOT NULL,
    salt     bytea NOT NULL,
    leaf     bytea NOT NULL,
    chain    bytea NOT NULL,
    at       timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX audit_by_project ON audit (project, position);
CREATE INDEX audit_by_task ON audit (project, task_id, position) WHERE task_id IS NOT NULL;
CREATE TABLE audit_head (
    shard    text PRIMARY KEY,
    position bigint NOT NULL,
    chain    bytea NOT NULL
);
INSERT INTO audit_head VALUES ('0', 0, sha256('counterpoint audit'));

CREATE TABLE vectors (
    project   text NOT NULL,
    store     text NOT NULL,
    id        text NOT NULL,
    version   int NOT NULL,
    source    text NOT NULL,
    label     smallint NOT NULL,
    model     text NOT NULL,
    lexemes   tsvector NOT NULL,
    embedding vector(384) NOT NULL,
    PRIMARY KEY (project, store, id)
);
CREATE INDEX vectors_by_meaning ON vectors USING hnsw (embedding vector_cosine_ops);
-- Vectors stay in the row: an exact scan inside a project reads them all.
ALTER TABLE vectors SET (toast_tuple_target = 8160);
ALTER TABLE vectors ALTER COLUMN embedding SET STORAGE PLAIN;
ALTER TABLE vectors ALTER COLUMN lexemes SET STORAGE MAIN;

-- Embeddings by model and content, so that the same text is never embedded twice.
CREATE TABLE embeddings (
    project   text NOT NULL,
    model     text NOT NULL,
    sha256    bytea NOT NULL,
    embedding vector(384) NOT NULL,
    PRIMARY KEY (project, model, sha256)
);

CREATE TABLE blobs (
    project  text NOT NULL,
    sha256   bytea NOT NULL,
    bytes    bigint NOT NULL,
    complete boolean NOT NULL DEFAULT false,
    at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, sha256)
);
CREATE TABLE blob_parts (
    project text NOT NULL,
    sha256  bytea NOT NULL,
    part    int NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (project, sha256, part)
);

DO $$
DECLARE fenced text;
BEGIN
    FOREACH fenced IN ARRAY ARRAY['records', 'history', 'messages', 'inbox', 'read_sets', 'audit', 'vectors',
                                  'embeddings', 'blobs', 'blob_parts'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', fenced);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', fenced);
        EXECUTE format('CREATE POLICY own_project ON %I USING (project = current_setting(''counterpoint.project'', true))', fenced);
    END LOOP;
    FOREACH fenced IN ARRAY ARRAY['records', 'vectors', 'history'] LOOP
        EXECUTE format('CREATE POLICY shared_project ON %I FOR SELECT USING (project = ''shared'')', fenced);
    END LOOP;
END $$;

GRANT USAGE ON SCHEMA public TO counterpoint_memory, counterpoint_inspect;
GRANT SELECT, INSERT, UPDATE ON lease, projects, records, audit_head, pending, restored, streams TO counterpoint_memory;
GRANT SELECT, INSERT ON history, messages, inbox, read_sets, audit TO counterpoint_memory;
GRANT SELECT, INSERT, UPDATE, DELETE ON vectors, embeddings, blobs, blob_parts TO counterpoint_memory;
GRANT DELETE ON pending, restored, inbox, read_sets, messages TO counterpoint_memory;
GRANT SELECT ON records, history, messages, inbox, read_sets, audit, vectors, projects, pending, lease
    TO counterpoint_inspect;

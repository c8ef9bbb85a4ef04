-- The tables of a commit once more, without row-level security and without our functions: the physical limit.
DROP SCHEMA IF EXISTS raw CASCADE;
CREATE SCHEMA raw;
CREATE TABLE raw.projects (LIKE public.projects INCLUDING ALL);
CREATE TABLE raw.records (LIKE public.records INCLUDING ALL);
CREATE TABLE raw.messages (LIKE public.messages INCLUDING ALL);
CREATE TABLE raw.pending (LIKE public.pending INCLUDING ALL);
CREATE TABLE raw.inbox (LIKE public.inbox INCLUDING ALL);
CREATE TABLE raw.audit (LIKE public.audit INCLUDING ALL);
CREATE TABLE raw.audit_head (LIKE public.audit_head INCLUDING ALL);
INSERT INTO raw.projects (project) VALUES ('bench');
INSERT INTO raw.audit_head VALUES ('0', 0, sha256('raw'));

-- Run by psql as a superuser at every start; every statement may be repeated.
\getenv owner_password COUNTERPOINT_OWNER_PASSWORD
\getenv memory_password COUNTERPOINT_MEMORY_PASSWORD
\getenv inspect_password COUNTERPOINT_INSPECT_PASSWORD

SELECT format('CREATE ROLE %I LOGIN', role)
FROM unnest(ARRAY['counterpoint_owner', 'counterpoint_memory', 'counterpoint_inspect']) AS role
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) \gexec

ALTER ROLE counterpoint_owner PASSWORD :'owner_password';
ALTER ROLE counterpoint_memory PASSWORD :'memory_password';
ALTER ROLE counterpoint_inspect PASSWORD :'inspect_password';
ALTER ROLE counterpoint_inspect SET default_transaction_read_only = on;

SELECT 'CREATE DATABASE counterpoint OWNER counterpoint_owner'
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'counterpoint') \gexec

REVOKE ALL ON DATABASE counterpoint, postgres, template1 FROM PUBLIC;
GRANT CONNECT ON DATABASE counterpoint TO counterpoint_memory, counterpoint_inspect;

\connect counterpoint
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS vector;

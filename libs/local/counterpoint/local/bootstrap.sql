-- Run by psql as a superuser at every start; every statement may be repeated.
\getenv owner_password COUNTERPOINT_OWNER_PASSWORD
\getenv memory_password COUNTERPOINT_MEMORY_PASSWORD
\getenv inspect_password COUNTERPOINT_INSPECT_PASSWORD
\getenv backup_password COUNTERPOINT_BACKUP_PASSWORD
\getenv shared_server COUNTERPOINT_SHARED_SERVER

SELECT format('CREATE ROLE %I LOGIN', role)
FROM unnest(ARRAY['counterpoint_owner', 'counterpoint_memory', 'counterpoint_inspect']) AS role
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) \gexec

ALTER ROLE counterpoint_owner PASSWORD :'owner_password';
ALTER ROLE counterpoint_memory PASSWORD :'memory_password';
ALTER ROLE counterpoint_inspect PASSWORD :'inspect_password';
ALTER ROLE counterpoint_inspect SET default_transaction_read_only = on;

-- An administrator who is no superuser must be a member of the role that is to own the database.
SELECT 'GRANT counterpoint_owner TO CURRENT_USER'
WHERE NOT (SELECT rolsuper FROM pg_roles WHERE rolname = CURRENT_USER) \gexec

SELECT format(
    'CREATE DATABASE counterpoint OWNER counterpoint_owner TEMPLATE template0 ENCODING ''UTF8'' %s',
    CASE WHEN current_setting('server_version_num')::int >= 170000
        THEN 'LOCALE ''C'' LOCALE_PROVIDER builtin BUILTIN_LOCALE ''C.UTF-8''' ELSE 'LOCALE ''C.UTF-8''' END)
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'counterpoint') \gexec

REVOKE ALL ON DATABASE counterpoint FROM PUBLIC;
\if :{?shared_server}
\else
REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC;
\endif
GRANT CONNECT ON DATABASE counterpoint TO counterpoint_memory, counterpoint_inspect;

\if :{?backup_password}
SELECT 'CREATE ROLE counterpoint_backup LOGIN BYPASSRLS'
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'counterpoint_backup') \gexec
ALTER ROLE counterpoint_backup PASSWORD :'backup_password';
ALTER ROLE counterpoint_backup SET default_transaction_read_only = on;
GRANT CONNECT ON DATABASE counterpoint TO counterpoint_backup;
GRANT pg_read_all_data TO counterpoint_backup;
\endif

\connect counterpoint
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS vector;

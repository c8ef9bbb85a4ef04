-- The id of the installation that the database belongs to, so that another one does not use it by mistake.
CREATE TABLE installation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id  text NOT NULL,
    at  timestamptz NOT NULL DEFAULT now()
);

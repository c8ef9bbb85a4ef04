-- How far a model has been asked for the relations that documents state.
ALTER TABLE extracted ALTER upto SET DEFAULT 0, ADD related bigint NOT NULL DEFAULT 0;

-- An item that a commit used: cited in its result, or decided on. One that is only quoted as a candidate is named, and
-- not used. NULL, as the release before writes it: used where it is named.
ALTER TABLE sources ADD used boolean;

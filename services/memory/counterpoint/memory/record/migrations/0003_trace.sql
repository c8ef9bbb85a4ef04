-- The trace that a message is part of, so that one sent again from the log stays in it.
ALTER TABLE messages ADD COLUMN traceparent text;

-- Whether a message's body is a CloudEvent in structured mode: one that is sent again for somebody else.
ALTER TABLE messages ADD COLUMN structured boolean NOT NULL DEFAULT false;

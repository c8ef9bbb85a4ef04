"""The record: PostgreSQL, its schema, and the rows of one commit."""

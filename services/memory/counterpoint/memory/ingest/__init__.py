"""Documents, past incidents and provider rows, and the entities that they mention."""

"""Import of documents, past incidents and provider rows, and the entities that they mention."""

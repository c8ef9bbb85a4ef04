"""The request server: query, commit, ingest and blobs over the bus."""

"""Sources of an ingest: files, pages, repositories, past incidents and provider packages."""

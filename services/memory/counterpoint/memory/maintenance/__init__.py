"""Background jobs that keep the record in order."""

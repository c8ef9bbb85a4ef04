"""Background jobs that keep the record consistent with the bus and within its retention."""

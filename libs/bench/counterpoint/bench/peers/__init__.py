"""Other memory stores on the same work."""

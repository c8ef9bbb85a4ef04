"""Evidence: all that memory knows about a task, gathered once into one value."""

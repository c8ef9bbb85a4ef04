"""The card of a task: what failed, what is known, what to do next."""

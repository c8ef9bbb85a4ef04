"""The gateway to models and web search: HTTP API, reservations, budgets, and the providers themselves."""

"""Webhooks: requests of other systems as tasks and outcomes."""

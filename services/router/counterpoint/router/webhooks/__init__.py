"""Webhooks: what other systems push, as tasks and outcomes."""

"""Notifications: what happened to tasks, told to receivers outside."""

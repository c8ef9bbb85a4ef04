"""Notifications: events of tasks, told to receivers outside."""

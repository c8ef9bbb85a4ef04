"""Backup of a running house into one file, and its restoration into an empty one."""

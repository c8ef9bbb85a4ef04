"""Incidents: failures grouped by cause, the records kept of them, and the commits that events lead to."""

"""Policies: from evidence to an assessment and a result, by the lane of a task. Pure."""

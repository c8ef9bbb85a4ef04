"""A memory on a PostgreSQL of this session's own."""

from diode.conftest import house, project

__all__ = ["house", "project"]

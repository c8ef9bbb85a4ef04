"""Functions of the database, in a schema that is named by their text.

A memory process finds the functions of its own release, even after a later migration.
"""

import hashlib
from importlib.resources import files

SQL = files(__package__).joinpath("migrations", "functions.sql").read_text()
SCHEMA = f"functions_{hashlib.sha256(SQL.encode()).hexdigest()[:12]}"
"""Schema of the functions, named by their text. The next change keeps it, the one after drops it."""
SEARCH_PATH = f"{SCHEMA}, public"
"""Search path of memory's connections."""

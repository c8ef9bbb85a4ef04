"""Readers: the content of a document to its text, the first of two stages; the second is `ingest.chunk`.

The text is redacted between the two, so that chunks depend on the redacted text alone. The type is detected from the
content alone; PDF and HTML are read in a process of their own.
"""

from counterpoint.memory.ingest.readers.document import DocumentText, NeedsWorker, read
from counterpoint.memory.ingest.readers.reader_process import READERS

__all__ = ["READERS", "DocumentText", "NeedsWorker", "read"]

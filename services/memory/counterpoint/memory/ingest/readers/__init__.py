"""What a document is handed in as becomes its text: the first of two stages, of which `retrieval.chunk` is the second.

Between the two what is sensitive is taken out, so that the text of a document can be cut from itself alone. Everything
here is decided by the content; PDF and HTML are read by a process of their own.
"""

from counterpoint.memory.ingest.readers.document import Read, read

__all__ = ["Read", "read"]

"""Excerpts: the parts of found documents that are quoted, and how likely they are to answer."""

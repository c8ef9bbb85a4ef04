"""OpenLineage events as values: the parser, the facets it reads, and the facts of a run."""

"""Projections of the record that can be rebuilt: episodic memory and the graph."""

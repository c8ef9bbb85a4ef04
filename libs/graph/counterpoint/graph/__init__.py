"""The algebra of lineage: names, edges, directed walks, and the blast radius."""

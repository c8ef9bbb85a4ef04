"""Read sets of deliveries, and the influence of records on later ones."""

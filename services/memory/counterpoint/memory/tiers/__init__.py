"""The tiers beside the record: what is kept a second time, so that it can be searched or walked."""

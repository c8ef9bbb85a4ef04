"""Rendering for terminals: cards, tables and trees."""

"""Sections of the memory benchmark."""

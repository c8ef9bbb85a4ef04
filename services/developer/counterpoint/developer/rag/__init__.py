"""Runs over a question: route, retrieve, evaluate, generate and validate, with returns."""

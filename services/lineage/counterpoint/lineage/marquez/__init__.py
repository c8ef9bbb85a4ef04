"""The HTTP API of Marquez, as far as producers and people use it: its routes, queries and JSON views."""

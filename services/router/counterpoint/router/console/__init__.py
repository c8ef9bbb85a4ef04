"""The console: a page for people, and a client of the HTTP API."""

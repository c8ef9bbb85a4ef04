"""Listening sockets."""

import socket


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address. Raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=512)

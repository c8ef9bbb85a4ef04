"""The listening sockets of the HTTP APIs, which stay open while their service is replaced: its clients wait."""

import socket

from counterpoint.bus.health import listening_socket
from counterpoint.local.state_file import StateFile, is_free
from counterpoint.proto.errors import ErrorCode, Permanent, Problem


class Listeners:
    """Ports of the stack's servers, and the sockets among them that the supervisor holds open."""

    def __init__(self, state: StateFile) -> None:
        self._state = state
        self._sockets: list[socket.socket] = []

    def port(self, name: str, host: str, requested: int) -> int:
        """Return the port of a server, a stored free one for 0. Raises `Permanent` when the wanted one is taken."""
        if requested == 0:
            return self._state.port(name)
        if not is_free(requested, host):
            raise _taken(name, host, requested)
        return requested

    def open(self, name: str, host: str, port: int) -> int:
        """Listen, and return the file descriptor for the service. Raises `Permanent` when the port is taken."""
        try:
            listener = listening_socket(host, port)
        except OSError:
            raise _taken(name, host, port) from None
        self._sockets.append(listener)
        return listener.fileno()

    def close(self) -> None:
        """Close the sockets."""
        for listener in self._sockets:
            listener.close()


def _taken(name: str, host: str, port: int) -> Permanent:
    problem = f"{port} on {host} is in use or cannot be bound; 0 chooses a free port"
    return Permanent(ErrorCode.PORT_TAKEN, (Problem(field=f"{name}_port", problem=problem),))

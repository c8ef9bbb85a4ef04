"""The health check of a container: exit 0 if the service answers 200 on `/readyz`, otherwise say what it answers.

The request is written to the socket: importing an HTTP client would take most of the time of a check.
"""

import os
import socket
import sys

_REQUEST = b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n"
_TIMEOUT_S = 2.0


def answer(port: int) -> str:
    """Return the status line and the body of `/readyz`. Raises `OSError` if nothing answers in time."""
    with socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S) as connection:
        connection.sendall(_REQUEST)
        received = b""
        while part := connection.recv(4096):
            received += part
    head, _, body = received.partition(b"\r\n\r\n")
    status = head.partition(b" ")[2].partition(b"\r\n")[0]
    return f"{status.decode()} {body.decode()}".strip()


def main() -> None:
    """Ask the service of this container."""
    try:
        answered = answer(int(os.environ["COUNTERPOINT_HEALTH_PORT"]))
    except OSError as error:
        sys.exit(f"/readyz: {error}")
    if not answered.startswith("200 "):
        sys.exit(f"/readyz: {answered}")


if __name__ == "__main__":
    main()

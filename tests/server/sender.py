"""A client that sends a request and hears what comes of it: a program of its own, next to one that measures.

In the process that measures it would hold the lock of Python while it sends and hears, and others' answers would seem
late. Each line on stdin sends the bytes of the file that is named on the command line, on a new connection, and is
answered with the outcome as JSON.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import sys
import threading
from pathlib import Path

LAST_ID = b"LAST"  # the answer behind which there is nothing to hear
WAIT_SECONDS = 30.0


def send(port: int, data: bytes) -> tuple[str, int]:
    """Return how it ended, and how many bytes of answers came."""
    answer_bytes = 0
    try:
        with socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as sock:
            threading.Thread(target=_send_all, args=(sock, data), daemon=True).start()
            last = b""
            while last != LAST_ID:
                left = int.from_bytes(exactly(sock, 4), "big")
                last = exactly(sock, 4)
                answer_bytes += left if last != LAST_ID else 0
                left -= 4
                while left:
                    left -= len(_some(sock, min(left, 1 << 20)))
    except ConnectionError:
        return "closed", answer_bytes
    except TimeoutError:
        return "waits", answer_bytes
    return "answered", answer_bytes


def _send_all(sock: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        sock.sendall(data)


def _some(sock: socket.socket, count: int) -> bytes:
    if not select.select([sock], [], [], WAIT_SECONDS)[0]:
        raise TimeoutError
    found = sock.recv(count)
    if not found:
        raise ConnectionError("closed")
    return found


def exactly(sock: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        found += _some(sock, count - len(found))
    return found


def main() -> None:
    port, path = int(sys.argv[1]), Path(sys.argv[2])
    for _ in sys.stdin:
        print(json.dumps(send(port, path.read_bytes())), flush=True)


if __name__ == "__main__":
    main()

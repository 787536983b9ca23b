"""Verbs that a broker answers to HTTP on its port, asked from another process: faults, toxics,
cleaning on demand.

One request, one connection. What the broker refuses is a Refusal with its words.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import StreamWriter
    from collections.abc import Mapping
    from typing import Any

    from minibroker.client.security import Security
    from minibroker.clock import Clock

TIMEOUT_MS = 10_000
LONG_TIMEOUT_MS = 3_600_000  # for what is answered when it is done, as compaction is


class Refusal(ValueError):
    """The broker does not do what it was asked; the text is its reason."""

    status = 0  # of HTTP; 0: there was none


def host_header(writer: StreamWriter, port: int) -> str:
    """Return the address that was reached: a name of it that the broker does not know would be refused."""
    reached: str = writer.get_extra_info("peername")[0]
    return f"[{reached}]:{port}" if ":" in reached else f"{reached}:{port}"


async def ask(
    host: str,
    port: int,
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    clock: Clock,
    timeout_ms: float = TIMEOUT_MS,
    security: Security | None = None,
) -> Any:
    """Return what the broker answers as JSON; Refusal, or OSError if there is no answer."""
    import asyncio
    import json

    context = None if security is None else security.context
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    timer = clock.after(timeout_ms, writer.transport.abort)
    try:
        data = b"" if body is None else json.dumps(body).encode()
        kind = f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n" if data else ""
        head_line = f"{method} {path} HTTP/1.1\r\nHost: {host_header(writer, port)}\r\n"
        writer.write(f"{head_line}{kind}\r\n".encode() + data)
        head, _, text = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        timer.cancel()
        writer.close()
    words = head.split(b" ", 2)
    if len(words) < 3 or not head.startswith(b"HTTP/1."):
        raise ConnectionError(f"{host}:{port} gives no answer to HTTP: is it a minibroker?")
    try:
        found = json.loads(text)
    except ValueError:
        raise Refusal(text.decode("utf-8", "replace").strip() or f"status {words[1].decode()}") from None
    if words[1] != b"200":
        refusal = Refusal(found["error"])
        refusal.status = int(words[1])
        raise refusal
    return found

"""One side of a comparison: a broker behind an address, asked with bytes, answering with bytes or in another way.

A broker can answer, close the connection, or say nothing. Nothing is known when a bound has passed, or at once where
a second request is answered first: answers of one connection come in the order of its requests.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.broker.virtual_broker import VirtualBroker
    from tests.server.running import FedTransport

ANSWER, CLOSED, NOTHING = "answer", "closed connection", "no answer"
ANSWER_SECONDS_MAX = 20.0  # what never comes must not stop a run for long, and what is slow is not wrong
LENGTH_BYTES = 4
PAUSE_MS = 10
CORRELATION_ID = 77  # of every request; there is one under way at a time
PROBE_ID = 78
PROBE = bytes.fromhex("00120000") + PROBE_ID.to_bytes(4, "big") + (0xFFFF).to_bytes(2, "big")  # ApiVersions v0


class Outcome(NamedTuple):
    """What became of a request."""

    kind: str
    frame: bytes = b""  # header and message of an answer, without the length


class Side:
    """A broker and the one connection to it, made anew when the broker closed it."""

    def __init__(self, address: str):
        host, _, port = address.rpartition(":")
        self.name = address
        self._target = (host.strip("[]"), int(port))
        self._socket: socket.socket | None = None

    def send(self, request: bytes) -> None:
        """Send header and message as one frame."""
        if self._socket is None:
            self._socket = socket.create_connection(self._target, timeout=ANSWER_SECONDS_MAX)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(ConnectionError):  # the broker closed: reading will say so
            self._socket.sendall(len(request).to_bytes(LENGTH_BYTES, "big") + request)

    def receive(self, seconds_max: float = ANSWER_SECONDS_MAX) -> Outcome:
        """Wait for the next frame."""
        assert self._socket is not None, "nothing was asked"
        try:
            deadline = time.monotonic() + seconds_max
            size = int.from_bytes(self._read(LENGTH_BYTES, deadline), "big")
            return Outcome(ANSWER, self._read(size, deadline))
        except TimeoutError:
            outcome = Outcome(NOTHING)
        except (ConnectionError, EOFError):
            outcome = Outcome(CLOSED)
        self.close()
        return outcome

    def receive_or_probe(self) -> Outcome:
        """Find out whether the request just sent is answered, by way of a second one behind it."""
        self.send(PROBE)
        outcome = self.receive()
        if outcome.kind != ANSWER:
            return outcome
        if outcome.frame[:4] == PROBE[4:8]:
            return Outcome(NOTHING)
        self.receive()  # the answer to the probe
        return outcome

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._socket is not None
        chunks = []
        while size > 0:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            chunk = self._socket.recv(min(size, 1 << 20))
            if not chunk:
                raise EOFError
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)


class VirtualSide(Side):
    """A connection to a broker in virtual time, where waiting for nothing takes none."""

    def __init__(self, broker: VirtualBroker):
        self._broker = broker
        self._transport: FedTransport | None = None

    def send(self, request: bytes) -> None:
        if self._transport is None or self._transport.is_gone:
            self._transport = self._broker.connect()
        self._broker.feed(self._transport, len(request).to_bytes(LENGTH_BYTES, "big") + request)

    def receive(self, seconds_max: float = ANSWER_SECONDS_MAX) -> Outcome:
        assert self._transport is not None, "nothing was asked"
        sent, end = self._transport.sent, self._broker.loop.time() + seconds_max
        while self._broker.loop.time() < end:
            size = int.from_bytes(sent[:LENGTH_BYTES], "big")
            if sent and len(sent) >= LENGTH_BYTES + size:
                frame = bytes(sent[LENGTH_BYTES : LENGTH_BYTES + size])
                del sent[: LENGTH_BYTES + size]
                return Outcome(ANSWER, frame)
            if self._transport.is_gone:
                return Outcome(CLOSED)
            self._broker.pass_ms(1)
        self.close()
        return Outcome(NOTHING)

    def pause(self) -> None:
        """Let a little time pass before something is asked again."""
        self._broker.pass_ms(PAUSE_MS)

    def close(self) -> None:
        if self._transport is not None:
            self._broker.hang_up(self._transport)
            self._transport = None

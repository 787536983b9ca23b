"""The last requests and answers of each connection: what it costs is paid when somebody looks.

A request is the start of its frame, how long it is, and the chunks of its answer, if they are small as they are, else
the start of each. They are read when rows are asked for (lines.py).
What must hold: memory is bounded, by connections, requests of each, and bytes of each; of what a login says, tokens
and passwords nothing is kept.
"""

from __future__ import annotations

from collections import deque

from minibroker.clock import machine_ms
from minibroker.traffic.tap import SECRETS, Tap, is_token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from minibroker.server.connection import Answer, Connection, Service
    from minibroker.server.large_answer import AnyChunk
    from minibroker.traffic.lines import RequestRow

    # By address of the client: time, begin, start of the request, its bytes, what is kept of the answer, end.
    Kept = dict[tuple[str, int], deque[list[Any]]]

REQUESTS_MAX, CONNECTIONS_MAX = 32, 64
HEAD_BYTES, CHUNK_BYTES = 2048, 64  # of a frame; of a further chunk, so much that the header of a batch is in it
PADDED_BYTES_MAX = 128 * 1024 * 1024
SECRET_REQUEST_BYTES, SECRET_ANSWER_BYTES = 8, 11  # up to the correlation id; up to the error


class Ring:
    """Those of one or several brokers."""

    def __init__(self, topic_name: Callable[[bytes], str | None]):
        """topic_name: by an id, for requests that have no names."""
        self._topic_name = topic_name
        self._kept: dict[int, Kept] = {}  # by broker

    def over(self, service: Service, broker: int) -> Service:
        """Return a service that keeps what passes."""
        return _Keeper(service, self._kept.setdefault(broker, {}))

    def rows(self, count: int | None = None) -> list[RequestRow]:
        """Return the last requests of all connections, the oldest first."""
        from minibroker.traffic.lines import RequestRow, summary_of

        found = sorted(
            ((*row, broker) for broker, kept in self._kept.items() for each in kept.values() for row in each),
            key=lambda row: row[1],
        )
        rows = []
        for time_ms, begun_ms, head, size, answer, ended_ms, broker in found if count is None else found[-count:]:
            answered = padded(answer) if isinstance(answer, list) else None
            said = summary_of(padded([(head, size)]) if head else b"", answered, self._topic_name)
            error = answer if isinstance(answer, str) else said.error
            took_ms = None if ended_ms is None else round(ended_ms - begun_ms, 3)
            rows.append(
                RequestRow(time_ms, said.client_id, said.api, said.version, said.summary, error, took_ms, broker)
            )
        return rows


class _Keeper(Tap):
    """The service of one broker's listener; what it does for each request is written out, for it is done for each."""

    def __init__(self, service: Service, connections: Kept):
        super().__init__(service)
        self._answer = service.answer
        self._connections = connections

    def answer(self, frame: memoryview, connection: Connection) -> Answer:
        size = len(frame)
        head = bytes(frame) if size <= HEAD_BYTES else bytes(frame[:HEAD_BYTES])
        is_plain = connection.session is None and head[:2] not in SECRETS
        if not is_plain:
            head = _without_secrets(head, connection)
        kept = self._connections.get(connection.remote_address)
        if kept is None:
            kept = self._new_connection(connection.remote_address)
        exchange = [connection.server.clock.now_ms(), machine_ms(), head, size, None, None]
        kept.append(exchange)
        try:
            answer = self._answer(frame, connection)
        except Exception as failure:
            self.failed(exchange, failure)
            raise
        if type(answer) is list:
            exchange[5] = machine_ms()
            if is_plain and len(answer) == 1 and len(answer[0]) <= HEAD_BYTES:
                exchange[4] = answer
            else:
                exchange[4] = _starts(answer, head)
            return answer
        return self.watched(exchange, answer)

    def _new_connection(self, address: tuple[str, int]) -> deque[list[Any]]:
        if len(self._connections) >= CONNECTIONS_MAX:
            del self._connections[next(iter(self._connections))]
        kept = self._connections[address] = deque(maxlen=REQUESTS_MAX)
        return kept

    def answered(self, exchange: list[Any], chunks: Sequence[AnyChunk] | None) -> None:
        exchange[5] = machine_ms()
        exchange[4] = None if chunks is None else _starts(chunks, exchange[2])

    def failed(self, exchange: list[Any], failure: Exception) -> None:
        exchange[4], exchange[5] = f"closed: {failure}", machine_ms()


def _without_secrets(head: bytes, connection: Connection) -> bytes:
    if is_token(head, connection):
        return b""
    return head[:SECRET_REQUEST_BYTES] if head[:2] in SECRETS else head


def _starts(chunks: Sequence[AnyChunk], head: bytes) -> list[Any]:
    """Return what is kept of an answer: chunks, or a start with the number of bytes that there were."""
    if not head or head[:2] in SECRETS:
        return [(bytes(chunks[0][:SECRET_ANSWER_BYTES]) if head else b"", sum(map(len, chunks)))]  # type: ignore[index]
    found: list[Any] = [_start(chunk, CHUNK_BYTES if index else HEAD_BYTES) for index, chunk in enumerate(chunks[:8])]
    return found if len(chunks) <= 8 else [*found, (b"", sum(map(len, chunks[8:])))]


def _start(chunk: AnyChunk, size_bytes: int) -> tuple[bytes, int]:
    """Return the start of a chunk, and how long it is; of what lies in a file nothing is read."""
    is_there = type(chunk) in (bytes, bytearray, memoryview)
    return (bytes(chunk[:size_bytes]) if is_there else b""), len(chunk)  # type: ignore[index]


def padded(pieces: Sequence[Any]) -> bytes:
    """Return a frame as long as it was, with zeros for what was not kept."""
    starts = [piece if isinstance(piece, tuple) else (piece, len(piece)) for piece in pieces]
    if sum(size for _, size in starts) > PADDED_BYTES_MAX:
        return b"".join(start for start, _ in starts)
    return b"".join(start.ljust(size, b"\0") for start, size in starts)

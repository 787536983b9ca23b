"""Recorded requests sent to a broker again, in their order, and its answers beside those that were recorded.

What must hold: a request is sent when everything has been answered that had been answered when it was recorded, on a
connection of its own for each one that was recorded, with the correlation id that it had. Ids that a broker has made up
(of topics, members, producers, fetch sessions) are those of now. What is masked is not sent.
Not here: when it was sent; it goes as fast as answers come.
"""

from __future__ import annotations

import asyncio
from struct import Struct as Layout
from typing import NamedTuple

from minibroker.client.connection import Connection
from minibroker.errors import KafkaError, ProtocolError
from minibroker.log.batches import crc32c
from minibroker.protocol.framing import decode_request, decode_response, encode_request
from minibroker.traffic.differences import Difference, Learned, differences
from minibroker.traffic.exchanges import RecordedExchange, paired
from minibroker.traffic.recording import REQUEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from typing import Any

    from minibroker.client.security import Security
    from minibroker.clock import Clock
    from minibroker.traffic.recording import Entry

PRODUCE, SASL_HANDSHAKE, API_VERSIONS = 0, 17, 18
ANSWER_MS = 60_000
MAGIC_PLACE, CRC, PRODUCER_ID, CRC_BEGIN, HEADER_BYTES = 16, Layout(">I"), Layout(">q"), 21, 61
CRC_PLACE, PRODUCER_PLACE = 17, 43


class ReplayedRequest(NamedTuple):
    """What came of a request."""

    exchange: RecordedExchange
    reason: str  # why there is nothing to compare; empty: there is
    differences: Sequence[Difference] = ()
    is_sent: bool = True


class Replay:
    """One replay."""

    def __init__(self, address: tuple[str, int], clock: Clock, security: Security | None = None):
        self._address, self._clock, self._security = address, clock, security
        self._connections: dict[int, Connection] = {}
        self._learned = Learned()
        self._under_way: dict[int, asyncio.Task[bytes]] = {}  # by the place of the request

    async def run(self, entries: Sequence[Entry]) -> AsyncIterator[ReplayedRequest]:
        """Yield what came of each request that was answered when it was recorded, or is not sent."""
        try:
            for entry, exchange in paired(entries):
                if entry.kind == REQUEST:
                    reason = await self._send(exchange)
                    if reason:
                        yield ReplayedRequest(exchange, reason, is_sent=False)
                elif id(exchange) in self._under_way:
                    yield await self._compare(exchange)
        finally:
            for task in self._under_way.values():
                task.cancel()
            for connection in self._connections.values():
                await connection.close()
            await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def _send(self, exchange: RecordedExchange) -> str:
        """Send a request; return why it is not."""
        entry = exchange.request
        if entry.is_masked or int.from_bytes(entry.payload[:2]) == SASL_HANDSHAKE:
            return "it was masked, or is of a login"
        frame, is_answered = self._frame_of(entry.payload)
        try:
            connection = self._connections.get(entry.connection)
            if connection is None or connection.closed:
                connection = self._connections[entry.connection] = await Connection.open(
                    *self._address,
                    clock=self._clock,
                    ask_versions=self._security is not None,
                    security=self._security,
                )
            await connection.wait_until_writable()
            if not is_answered:
                connection.send_raw(frame)
                return ""
        except KafkaError as failure:
            if not self._connections:
                raise
            return failure.message
        task = asyncio.get_running_loop().create_task(connection.call_raw(frame, timeout_ms=ANSWER_MS))
        self._under_way[id(exchange)] = task
        return ""

    def _frame_of(self, payload: bytes) -> tuple[bytes, bool]:
        """Return a frame with the ids of now, and whether it will be answered."""
        try:
            header, request = decode_request(payload)
        except ProtocolError:
            return len(payload).to_bytes(4) + payload, True
        before = request.encode(header.request_api_version)
        self._learned.put_into(request)
        if header.request_api_key == PRODUCE:
            self._put_producers(request)
        is_answered = header.request_api_key != PRODUCE or bool(request.acks)  # type: ignore[attr-defined]
        if request.encode(header.request_api_version) == before:
            return len(payload).to_bytes(4) + payload, is_answered  # to the byte
        chunks = encode_request(request, header.request_api_version, header.correlation_id, header.client_id)
        return b"".join(chunks), is_answered

    def _put_producers(self, request: Any) -> None:
        for topic in request.topic_data:
            for partition in topic.partition_data:
                records = partition.records
                if records is None or len(records) < HEADER_BYTES or records[MAGIC_PLACE] != 2:
                    continue
                (recorded,) = PRODUCER_ID.unpack_from(records, PRODUCER_PLACE)
                if (now := self._learned.now("producer_id", recorded)) != recorded:
                    batch = bytearray(records)
                    PRODUCER_ID.pack_into(batch, PRODUCER_PLACE, now)
                    CRC.pack_into(batch, CRC_PLACE, crc32c(batch[CRC_BEGIN:]))
                    partition.records = memoryview(bytes(batch))

    async def _compare(self, exchange: RecordedExchange) -> ReplayedRequest:
        task = self._under_way.pop(id(exchange))
        answer = exchange.answer
        assert answer is not None
        try:
            frame = await task
        except KafkaError as failure:
            return ReplayedRequest(exchange, f"no answer: {failure.message}")
        if answer.is_masked:
            return ReplayedRequest(exchange, "")
        request = exchange.request.payload
        api, version = int.from_bytes(request[:2]), int.from_bytes(request[2:4])
        try:
            recorded, now = (decoded(each, api, version) for each in (answer.payload, frame))
        except ProtocolError as error:
            same = answer.payload == frame
            return ReplayedRequest(exchange, "" if same else f"an answer that cannot be read: {error}")
        return ReplayedRequest(exchange, "", list(differences(recorded, now, self._learned)))


def decoded(frame: bytes, api: int, version: int) -> dict[str, Any]:
    """Return an answer as dict."""
    if api == API_VERSIONS and frame[4:6] == b"\0\x23":  # UNSUPPORTED_VERSION: always in version 0
        version = 0
    return decode_response(frame, api, version)[1].to_dict()

"""A client on a blocking socket: one request, one answer."""

from __future__ import annotations

import socket
from typing import Any

from minibroker.protocol.framing import decode_response, encode_request
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.metadata import MetadataRequest


class PlainClient:
    """Blocks until the answer is there; a broker that has gone is a ConnectionError."""

    def __init__(self, address: tuple[str, int], timeout_seconds: float = 60):
        self.socket = socket.create_connection(address, timeout_seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: Request, version: int, correlation_id: int = 1) -> None:
        self.socket.sendall(b"".join(encode_request(request, version, correlation_id, "plain")))

    def receive(self, api: int, version: int) -> Any:
        length = int.from_bytes(self._exactly(4), "big")
        return decode_response(self._exactly(length), api, version)[1]

    def ask(self, request: Request, version: int) -> Any:
        self.send(request, version)
        return self.receive(request.api, version)

    def create(self, topic: str, partitions: int) -> None:
        wanted = CreateTopicsRequest.CreatableTopic(
            name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        answer = self.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=60_000), 5)
        assert answer.topics[0].error_code == 0, answer

    def topics(self) -> list[str]:
        return [topic.name for topic in self.ask(MetadataRequest(topics=None), 9).topics]

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, count: int) -> bytes:
        pieces, left = [], count
        while left:
            piece = self.socket.recv(min(left, 1 << 20))
            if not piece:
                raise ConnectionError("the broker has closed the connection")
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

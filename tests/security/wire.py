"""A client that logs in to a broker in virtual time, frame by frame, without a socket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minibroker.config.sources import dotted
from minibroker.protocol.framing import decode_response, encode_request
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from minibroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.virtual_broker import VirtualBroker, virtual_broker
from tests.security.conversations import settings
from tests.server.running import FedTransport

LISTENERS = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
SETTINGS = {**LISTENERS, **settings("sasl_plaintext")}


@contextmanager
def asking_broker(as_version: str | None = None, **changed: object) -> Iterator[VirtualBroker]:
    """Run a broker that asks for logins, with other settings, by Kafka's names or with _ for each dot."""
    settings = {**SETTINGS, **{dotted(name): value for name, value in changed.items()}}
    with virtual_broker(settings, as_version=as_version) as broker:
        yield broker


class Wire:
    """One connection."""

    def __init__(self, broker: VirtualBroker):
        self.broker = broker
        self.transport: FedTransport = broker.connect()
        self._position = 0

    @property
    def connection(self) -> Any:
        return self.transport.connection

    @property
    def is_closed(self) -> bool:
        return self.transport.is_gone

    def send(self, data: bytes) -> None:
        self.broker.feed(self.transport, data)
        self.broker.pass_ms(0)

    def take(self) -> bytes | None:
        """Return the next answer, None if there is none yet."""
        sent = self.transport.sent
        if len(sent) == self._position:
            return None
        begin = self._position + 4
        self._position = begin + int.from_bytes(sent[self._position : begin], "big")
        return bytes(sent[begin : self._position])

    def ask(self, request: Request, version: int) -> Any:
        """Return the answer, None if none has come by now."""
        self.send(b"".join(encode_request(request, version, 1, "test")))
        answer = self.take()
        return None if answer is None else decode_response(answer, request.api, version)[1]

    def log_in(self, mechanism: str, *tokens: bytes) -> Any:
        """Return the last answer."""
        answer = self.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        for token in tokens:
            answer = self.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        return answer

    def serves(self) -> bool:
        """Whether requests are answered."""
        return self.ask(MetadataRequest(topics=[]), 9) is not None

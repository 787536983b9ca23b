"""In front of a listener's service: told of each request, and of its answer when that is there.

What must hold: what the service answers goes out as it is, at the moment at which it would have; a listener without a
tap does not know of this. A frame is good until the service returns, so what is kept is copied. Nobody keeps what a
login says, or what makes a token or a password: `SECRETS`, `is_token`.
"""

from __future__ import annotations

from minibroker.server.later import Later

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from typing import Any

    from minibroker.server.connection import Answer, Connection, Service
    from minibroker.server.http import HttpAnswer, HttpRequest
    from minibroker.server.large_answer import AnyChunk

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
OF_LOGINS = (bytes((0, API_VERSIONS)), bytes((0, SASL_HANDSHAKE)), bytes((0, SASL_AUTHENTICATE)))
# Logins; delegation tokens; passwords of SCRAM; requests within others.
SECRET_APIS = frozenset((SASL_AUTHENTICATE, 38, 39, 40, 41, 51, 58))
SECRETS = frozenset(bytes((0, api)) for api in SECRET_APIS)


class Tap:
    """A Service in front of another; a subclass says what is done with what passes."""

    def __init__(self, service: Service):
        self.service = service
        self.shares, self.stretches = service.shares, service.stretches

    def answer(self, frame: memoryview, connection: Connection) -> Answer:
        exchange = self.asked(frame, connection)
        try:
            answer = self.service.answer(frame, connection)
        except Exception as failure:
            self.failed(exchange, failure)
            raise
        return self.watched(exchange, answer)

    def asked(self, frame: memoryview, connection: Connection) -> Any:
        """Take a request; what is returned stands for it."""

    def answered(self, exchange: Any, chunks: Sequence[AnyChunk] | None) -> None:
        """Take its answer; None: there is none."""

    def failed(self, exchange: Any, failure: Exception) -> None:
        """Take note that its connection is closed for it."""

    def watched(self, exchange: Any, answer: Answer) -> Answer:
        """Return an answer, of which `answered` is told when it is there."""
        if type(answer) is Later:
            return answer.into(lambda made: self._told(exchange, made))
        if answer is None or not hasattr(answer, "__await__"):
            return self._told(exchange, answer)  # type: ignore[no-any-return]
        return self._finish(exchange, answer)

    def _told(self, exchange: Any, chunks: Any) -> Any:
        self.answered(exchange, chunks)
        return chunks

    async def _finish(self, exchange: Any, waiting: Any) -> Any:
        try:
            return self._told(exchange, await waiting)
        except Exception as failure:
            self.failed(exchange, failure)
            raise

    def disk_failed(self, failure: Exception) -> None:
        self.service.disk_failed(failure)

    def http_refusal(self, request: HttpRequest) -> HttpAnswer | None:
        return self.service.http_refusal(request)

    def http(self, request: HttpRequest) -> HttpAnswer | Coroutine[None, None, HttpAnswer]:
        return self.service.http(request)


def is_token(frame: bytes | memoryview, connection: Connection) -> bool:
    """Whether a frame is a token of a login, without a header."""
    session = connection.session
    return session is not None and not session.is_complete and bytes(frame[:2]) not in OF_LOGINS

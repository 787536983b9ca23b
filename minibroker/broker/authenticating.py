"""The service of a listener that asks for a login: it stands in front of the dispatcher, which knows nothing of it.

    before       ApiVersions, SaslHandshake, tokens; anything else closes the connection
    afterwards   requests go to the dispatcher; one that comes when the session is over closes the connection

A login that fails is answered after connection.failed.authentication.delay.ms, and then the connection is closed. Who
does not log in within LOGIN_MS is closed, too; who begins to do it again is at his next request. No frame of a login,
be it the first or another one on the same connection, is longer than sasl.server.max.receive.size.
Kafka: waits for connections.max.idle.ms with a login, and takes tokens as long as such a frame.
Not here: what a login is (security/sasl.py), what is checked (security/sasl_settings.py).
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from struct import Struct as Layout
from typing import Any, Final

from minibroker.broker.broker_parts import BrokerParts
from minibroker.broker.dispatch import HEADER_START, LARGE_FRAME_BYTES, Dispatcher, Route, find_route
from minibroker.broker.http_pages import HEALTH_PAGES
from minibroker.clock import REQUEST
from minibroker.errors import Error, InvalidLength, ProtocolError, UnsupportedVersion
from minibroker.event_kinds import Login
from minibroker.faults.answers import Fault, refuse
from minibroker.protocol.headers import Request, RequestHeader
from minibroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from minibroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from minibroker.protocol.registry import APIS
from minibroker.schema.coding import decode_from
from minibroker.security.sasl import CHANGED, FIRST, TOKENS, IllegalState, Refusal, Session, shown_name
from minibroker.security.sasl_settings import ListenerLogins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.dispatch import Frame
    from minibroker.clock import Timer
    from minibroker.server.connection import Answer, Connection
    from minibroker.server.http import HttpAnswer, HttpRequest

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
LOGIN_MS: Final = 30_000
LOOK_MS: Final = 1_000
LENGTH: Final = Layout(">i")
NO_ERROR: Final = b"\0\0"  # behind length and correlation id of an answer to ApiVersions
TEXT: Final = "text/plain; charset=utf-8"


class Authenticating:
    """One listener's."""

    def __init__(self, node: BrokerParts, dispatcher: Dispatcher, logins: ListenerLogins, frame_bytes_max: int):
        """frame_bytes_max: of who has logged in."""
        self.node = node
        self.dispatcher = dispatcher
        self.shares, self.stretches = dispatcher.shares, dispatcher.stretches
        self.receive_bytes_max = logins.receive_bytes_max
        self.counts = {"succeeded": 0, "failed": 0, "expired": 0}
        self.mechanisms = logins.mechanisms
        self._frame_bytes_max = frame_bytes_max
        self._delay_ms: int = node.config["connection.failed.authentication.delay.ms"]
        self._clock = node.clock
        self._waiting: dict[Connection, int] = {}  # until when each has to have logged in, by steady_ms; in that order
        self._timer: Timer | None = None

    # A service

    def answer(self, frame: memoryview, connection: Connection) -> Answer:
        session = connection.session
        if session is None or not session.is_complete:
            return self._log_in(frame, connection)
        if session.expires_ms is not None:
            elapsed_ms = self._clock.elapsed_ms()
            if _api_of(frame) == SASL_HANDSHAKE and session.may_begin_again(elapsed_ms):
                return self._log_in(frame, connection)
            if session.has_expired(elapsed_ms):
                self.counts["expired"] += 1
                self._tell(connection, session, "has expired", "its session is over")
                connection.close(f"the login of {shown_name(session.principal.name)} has expired")
                return None
        return self.dispatcher.answer(frame, connection)

    def disk_failed(self, failure: Exception) -> None:
        self.dispatcher.disk_failed(failure)

    def http_refusal(self, request: HttpRequest) -> HttpAnswer | None:
        if request.method in ("GET", "HEAD") and request.path in HEALTH_PAGES:
            return self.dispatcher.http_refusal(request)
        words = "this listener asks for a login: only /health and /ready are shown here, the rest at one without\n"
        return "403 Forbidden", TEXT, words.encode()

    def http(self, request: HttpRequest) -> HttpAnswer | Coroutine[None, None, HttpAnswer]:
        return self.dispatcher.http(request)

    # Who has not logged in

    def opened(self, connection: Connection) -> None:
        connection.session = Session(self.mechanisms)
        self._waiting[connection] = self._clock.steady_ms() + LOGIN_MS
        if self._timer is None:
            self._timer = self._clock.after(LOOK_MS, self._look_around)

    def _look_around(self) -> None:
        """Close who has had the time to log in; forget who has gone."""
        now_ms = self._clock.steady_ms()
        for connection, due_ms in list(self._waiting.items()):
            if connection.is_closing:
                del self._waiting[connection]
            elif due_ms <= now_ms:
                del self._waiting[connection]
                self.counts["failed"] += 1
                session = connection.session
                assert session is not None, connection
                self._tell(connection, session, "fails", "it took too long", is_again=session.is_again)
                connection.close("nobody has logged in")
        self._timer = self._clock.after(LOOK_MS, self._look_around) if self._waiting else None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # A login

    def _log_in(self, frame: memoryview, connection: Connection) -> Answer:
        session = connection.session
        if session is None:
            raise ProtocolError("a connection without a session")
        if session.state == CHANGED:
            return self._fail(connection, session, IllegalState("it wants another mechanism than before"))
        if session.state == TOKENS:
            return self._take_token(frame, connection, session)
        try:
            return self._take_request(frame, connection, session)
        except Refusal as refusal:
            return self._fail(connection, session, refusal)

    def _take_request(self, frame: memoryview, connection: Connection, session: Session) -> Answer:
        """Answer what comes before tokens."""
        api = _api_of(frame)
        if api == API_VERSIONS and session.state == FIRST:
            answer = self.dispatcher.answer(frame, connection)
            first = answer[0] if isinstance(answer, list) else None
            if isinstance(first, bytes) and first[8:10] == NO_ERROR:
                session.answered_versions()
            return answer
        if api != SASL_HANDSHAKE:
            raise IllegalState(
                f"{APIS.get(api, f'a request of api {api}')} comes before it is known who asks; the client needs "
                f"security.protocol=SASL_..., and sasl.mechanism one of {', '.join(session.offered)}"
            )
        route, request, correlation_id = self._read(frame)
        assert isinstance(request, SaslHandshakeRequest), request
        code = Error.NONE if session.offers(request.mechanism) else Error.UNSUPPORTED_SASL_MECHANISM
        answer = route.frame(SaslHandshakeResponse(error_code=code, mechanisms=session.offered), correlation_id)
        if code:
            wanted = shown_name(request.mechanism)
            refusal = Refusal(f"{wanted} is not among sasl.enabled.mechanisms")
            return self._fail(connection, session, refusal, None if session.is_again else answer, code)
        session.choose(request.mechanism, route.version)
        connection.frame_bytes_max = self.receive_bytes_max
        return answer

    def _take_token(self, frame: memoryview, connection: Connection, session: Session) -> Answer:
        is_again = session.is_again  # as long as the login is not complete
        respond = partial(session.respond, now_ms=self._clock.now_ms(), elapsed_ms=self._clock.elapsed_ms())
        if not session.has_headers:
            try:
                token, _ = respond(bytes(frame))
            except Refusal as refusal:
                return self._fail(connection, session, refusal)
            self._look_at(connection, session, is_again=is_again)
            return [LENGTH.pack(len(token)) + token]
        route, request, correlation_id = self._read(frame)
        if not isinstance(request, SaslAuthenticateRequest):
            words = f"Unexpected Kafka request of type {route.cls.__name__} during SASL authentication."
            response = refuse(request, route.api, route.version, Fault(Error.ILLEGAL_SASL_STATE, words))
            return self._fail(connection, session, IllegalState(words), route.frame(response, correlation_id))
        try:
            token, lifetime_ms = respond(bytes(request.auth_bytes))
        except Refusal as refusal:
            failed = SaslAuthenticateResponse(
                error_code=Error.SASL_AUTHENTICATION_FAILED, error_message=refusal.told, auth_bytes=b""
            )
            return self._fail(connection, session, refusal, route.frame(failed, correlation_id))
        self._look_at(connection, session, is_again=is_again)
        response = SaslAuthenticateResponse(
            error_code=Error.NONE, error_message="", auth_bytes=token, session_lifetime_ms=lifetime_ms
        )
        return route.frame(response, correlation_id)

    def _look_at(self, connection: Connection, session: Session, *, is_again: bool) -> None:
        """Let in who has logged in."""
        if session.is_complete:
            self._waiting.pop(connection, None)
            connection.principal = session.principal
            connection.frame_bytes_max = self._frame_bytes_max
            self.counts["succeeded"] += 1
            self._tell(connection, session, "succeeds", "the credentials are right", is_again=is_again)

    def _read(self, frame: memoryview) -> tuple[Route, Request, int]:
        """Return route, request and correlation id of a frame, which is a small one."""
        if not HEADER_START.size <= len(frame) <= self.receive_bytes_max:
            raise InvalidLength(f"{len(frame)} bytes are no request of a login", 0, "RequestHeader")
        api, version, correlation_id, _ = HEADER_START.unpack_from(frame)
        served = self.node.served.get(api)
        if served is None or not served[0] <= version <= served[1]:
            raise UnsupportedVersion(f"api {api} version {version} is not served here", 0, "RequestHeader")
        if api not in (SASL_HANDSHAKE, SASL_AUTHENTICATE) and len(frame) > LARGE_FRAME_BYTES:
            raise InvalidLength(f"{len(frame)} bytes of {APIS.get(api, api)} before a login", 0, "RequestHeader")
        route = find_route(api, version)
        counts = self.node.request_counts
        counts[api, version] = counts.get((api, version), 0) + 1
        _, position = RequestHeader.decode_from(frame, 0, route.header_version)
        request, _ = decode_from(route.cls, frame, position, version)
        return route, request, correlation_id

    def _fail(
        self,
        connection: Connection,
        session: Session,
        refusal: Refusal,
        answer: Frame | None = None,
        code: Error = Error.SASL_AUTHENTICATION_FAILED,
    ) -> Coroutine[Any, Any, None]:
        session.fail()
        self._waiting.pop(connection, None)
        self.counts["failed"] += 1
        if isinstance(refusal, IllegalState):
            code = Error.ILLEGAL_SASL_STATE
        self._tell(connection, session, "fails", str(refusal), refusal.name, error=code.name, is_again=session.is_again)
        by = f" by {session.mechanism}" if session.mechanism else ""
        of = f" of {shown_name(refusal.name)}" if refusal.name else ""
        return self._close_later(connection, f"the login{of}{by} failed: {refusal}", answer)

    async def _close_later(self, connection: Connection, reason: str, answer: Frame | None) -> None:
        """Keep who has failed waiting: guessing is not to be fast."""
        if self._delay_ms:
            await self._clock.sleep(self._delay_ms, REQUEST)
        if answer is not None:
            connection.write(answer)
        connection.close(reason)

    def _tell(
        self,
        connection: Connection,
        session: Session,
        state: str,
        why: str,
        name: str = "",
        *,
        error: str = "",
        is_again: bool = False,
    ) -> None:
        events = self.node.events
        if events.observed:
            events.emit(
                Login(
                    broker=self.node.node_id,
                    listener=connection.listener_name,
                    user=shown_name(name or session.principal.name),
                    mechanism=session.mechanism or "no mechanism",
                    state=state,
                    why=why,
                    address=connection.remote_address[0],
                    error=error,
                    is_again=is_again,
                )
            )


def _api_of(frame: memoryview) -> int:
    return int.from_bytes(frame[:2], signed=True)

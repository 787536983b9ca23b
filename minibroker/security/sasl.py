"""SASL on one connection: what may come next, and what becomes of it (Kafka's SaslServerAuthenticator).

    first         ApiVersions or SaslHandshake
    versions      ApiVersions has been answered: SaslHandshake
    tokens        of the mechanism: bare after a handshake v0, in SaslAuthenticate after v1
    complete      requests; once a session has an end also a handshake, with which it begins again (KIP-368)
    changed       who logs in again has named another mechanism: whatever comes next fails
    failed        nothing

What must hold: before a login is complete nothing but these is looked at. Who logs in again stays who he is, by the
mechanism that he came with. What a client is told of a failure is Kafka's text, from which nobody learns which names
there are; what people are told names no secret.
Not here: the mechanisms (plain.py, scram.py, oauth.py), frames and answers (broker/authenticating.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from minibroker.security.principal import ANONYMOUS, USER, Principal

FIRST, VERSIONS, TOKENS, COMPLETE = "first", "versions", "tokens", "complete"
AGAIN, CHANGED, FAILED = "again", "changed", "failed"

# (state, what happens) -> state; what is not here fails.
MOVES: Final = {
    (FIRST, "versions"): VERSIONS,
    (FIRST, "mechanism"): TOKENS,
    (VERSIONS, "mechanism"): TOKENS,
    (TOKENS, "token"): TOKENS,
    (TOKENS, "last token"): COMPLETE,
    (COMPLETE, "again"): AGAIN,
    (AGAIN, "mechanism"): TOKENS,
    (AGAIN, "other mechanism"): CHANGED,
}
AGAIN_MS_MIN: Final = 1_000  # nobody logs in again more often
TOKEN_BYTES_MAX: Final = 64 * 1024  # of a client's message: it is read at once, and others have to wait for that
SHOWN_LETTERS_MAX: Final = 80  # letters of a name that people are shown


class Refusal(Exception):
    """A login that fails: the text is for people, `told` for the client; None: only that it failed."""

    def __init__(self, reason: str, told: str | None = None, name: str = ""):
        super().__init__(reason)
        self.told = told
        self.name = name  # that the client gave, if it did


class IllegalState(Refusal):
    """A request at the wrong time."""


class Exchange:
    """The tokens of one login by some mechanism."""

    is_complete = False
    name = ""  # of who has come in
    is_token = False  # by a delegation token
    expires_ms: int | None = None  # until when the credential is good, ms since 1970

    def respond(self, token: bytes) -> bytes:
        """Return the answer to a token of the client, or raise Refusal."""
        raise NotImplementedError


class Mechanism:
    """What a listener offers."""

    __slots__ = ("begin", "session_ms_max")

    def __init__(self, begin: Callable[[], Exchange], session_ms_max: int):
        self.begin = begin
        self.session_ms_max = session_ms_max  # connections.max.reauth.ms; 0: for ever


class Session:
    """The login of one connection, and how long it holds."""

    __slots__ = (
        "_again_ms",
        "_exchange",
        "_mechanisms",
        "_previous",
        "expires_ms",
        "has_headers",
        "is_token",
        "mechanism",
        "principal",
        "state",
    )

    def __init__(self, mechanisms: Mapping[str, Mechanism]):
        self._mechanisms = mechanisms
        self.state = FIRST
        self.mechanism = ""
        self.has_headers = False  # tokens come in SaslAuthenticate
        self.principal = ANONYMOUS
        self.is_token = False
        self.expires_ms: int | None = None  # by elapsed_ms; None: never
        self._exchange: Exchange | None = None
        self._previous: tuple[str, Principal] | None = None  # of who logs in again
        self._again_ms: int | None = None  # when that last began

    @property
    def is_complete(self) -> bool:
        return self.state == COMPLETE

    @property
    def is_again(self) -> bool:
        """Whether who had come in already logs in again."""
        return self._previous is not None

    def has_expired(self, elapsed_ms: int) -> bool:
        return self.expires_ms is not None and elapsed_ms > self.expires_ms

    def answered_versions(self) -> None:
        self._move("versions")

    def may_begin_again(self, elapsed_ms: int) -> bool:
        """Begin to log in again, if the session has an end and the last time was not just now."""
        too_soon = self._again_ms is not None and elapsed_ms - self._again_ms < AGAIN_MS_MIN
        if self.expires_ms is None or too_soon:
            return False
        self._move("again")
        self._again_ms = elapsed_ms
        self._previous = (self.mechanism, self.principal)
        return True

    def offers(self, mechanism: str) -> bool:
        return mechanism in self._mechanisms

    @property
    def offered(self) -> list[str]:
        return list(self._mechanisms)

    def choose(self, mechanism: str, version: int) -> None:
        """Take the mechanism of a handshake; it is one that is offered."""
        self.has_headers = version >= 1
        if self._previous is not None and self._previous[0] != mechanism:
            self._move("other mechanism")
            return
        self._move("mechanism")
        self.mechanism = mechanism
        self._exchange = self._mechanisms[mechanism].begin()

    def respond(self, token: bytes, *, now_ms: int, elapsed_ms: int) -> tuple[bytes, int]:
        """Return the answer to a token, and how long the session holds, 0 as long as it is not complete or has no end.

        Refusal, if the login fails.
        """
        exchange = self._exchange
        if self.state != TOKENS or exchange is None:
            self.state = FAILED
            raise IllegalState("it wants another mechanism than before" if self.is_again else "nothing is expected")
        try:
            if len(token) > TOKEN_BYTES_MAX:
                raise Refusal(f"its message has {len(token)} bytes, and no more than {TOKEN_BYTES_MAX} are read")
            answer = exchange.respond(token)
            if not exchange.is_complete:
                self._move("token")
                return answer, 0
            principal = Principal(USER, exchange.name)
            if self._previous is not None and principal != self._previous[1]:
                was = self._previous[1]
                told = (
                    f"Cannot change principals during re-authentication from {was.type}.{was.name}: "
                    f"{principal.type}.{principal.name}"
                )
                raise Refusal("it wants to be somebody else than before", told, exchange.name)
        except Refusal as refusal:
            self.fail()
            doing = "re-authentication" if self.is_again else "authentication"
            if refusal.told is None:
                refusal.told = (
                    f"Authentication failed during {doing} due to invalid credentials with SASL mechanism "
                    f"{self.mechanism}"
                )
            raise
        lifetime_ms = self._lifetime_ms(exchange, now_ms)
        self._move("last token")
        self._exchange, self._previous = None, None
        self.principal, self.is_token = principal, exchange.is_token
        self.expires_ms = None if lifetime_ms is None else elapsed_ms + lifetime_ms
        return answer, lifetime_ms or 0

    def _lifetime_ms(self, exchange: Exchange, now_ms: int) -> int | None:
        most_ms = self._mechanisms[self.mechanism].session_ms_max
        limits = [most_ms] if most_ms > 0 else []
        if exchange.expires_ms is not None:
            limits.append(max(exchange.expires_ms - now_ms, 0))
        return min(limits) if limits else None

    def fail(self) -> None:
        """Let nothing come of this any more."""
        self.state, self._exchange = FAILED, None

    def _move(self, what: str) -> None:
        before, self.state = self.state, FAILED
        after = MOVES.get((before, what))
        if after is None:
            raise IllegalState(f"{what} at the wrong time")
        self.state = after


def utf8(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise Refusal("its token is no text") from None


def shown_name(name: str) -> str:
    """Return a client's word as people are shown it: on one line, and no longer than a name is."""
    cut = name if len(name) <= SHOWN_LETTERS_MAX else f"{name[:SHOWN_LETTERS_MAX]}..."
    return repr(cut)

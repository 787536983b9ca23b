"""Whatever bytes come from a client, or stand in a file, end in one of our typed errors."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minibroker.security.jaas import parse_jaas
from minibroker.security.oauth import ClaimChecks, OAuthExchange, WrongToken, check_signed, check_unsecured
from minibroker.security.plain import PlainExchange
from minibroker.security.sasl import Exchange, Refusal
from minibroker.security.users import parse_scram_user, parse_user
from tests.security.conversations import claims, client_first, jwt, plain
from tests.security.test_scram import FINAL, FIRST, begin
from tests.security.wire import Wire, asking_broker

CHECKS = ClaimChecks(lambda: 1_800_000_000_000)
PIECES = [b"n", b",", b"=", b"a=", b"n=", b"r=", b"c=", b"p=", b"biws", b"\0", b"\x01", b"auth=Bearer ", b".", b"e30"]
PIECES += [b"\xff", b"=2C", b"tokenauth=true", FIRST, FINAL, plain("alice", "x"), jwt(claims()).encode()]
TOKENS = st.one_of(st.binary(max_size=60), st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join))


@given(st.lists(TOKENS, min_size=1, max_size=4))
@example([FIRST, b"c=biws,r=,p="])
@example([b"n,,\x01auth=Bearer .\x01\x01", b"\x01"])
def test_tokens_are_answered_or_refused(tokens: list[bytes]) -> None:
    exchanges: list[Exchange] = [
        begin(),
        PlainExchange({"alice": "x"}),
        OAuthExchange(lambda token: check_unsecured(token, CHECKS)),
    ]
    for exchange in exchanges:
        with suppress(Refusal):
            for token in tokens:
                assert isinstance(exchange.respond(token), bytes)


class NoKeys:
    def verify(self, *_: object) -> bool:
        return True  # so that the claims are looked at


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["sub", "exp", "iat", "nbf", "iss", "aud", "scope", "x"])


@given(st.dictionaries(NAMES, JSON), st.dictionaries(st.sampled_from(["alg", "kid", "crit"]), JSON))
def test_claims_of_any_kind_are_taken_or_not(body: dict[str, object], header: dict[str, object]) -> None:
    strict = CHECKS._replace(is_strict=True, audiences=["kafka"], issuer="us", scopes=["a"])
    for checks in (CHECKS, strict):
        with suppress(WrongToken):
            check_signed(jwt({"exp": 1_900_000_000, **body}, {**header, "alg": "RS256"}, "AAAA"), NoKeys(), checks)
        with suppress(WrongToken):
            check_unsecured(jwt(body, header or None), checks)


@given(st.text(alphabet=st.sampled_from("a1 ='\"\\;/*\n.required[],:SCRAM-HA256"), max_size=60))
def test_lines_of_settings_are_read_or_refused(text: str) -> None:
    for read in (parse_jaas, parse_scram_user, parse_user):
        with suppress(ValueError):
            read(text)


STARTS = [b"\0\x11\0\1", b"\0\x24\0\2", b"\0\x12\0\3", b"\0\x24\0\0", b"\0\3\0\1", b"\0\x11\0\0", b"\0\x24\x7f\xff"]
HEADERS = [b"\0\0\0\1\xff\xff", b"\0\0\0\1\0\0\0", b"\0\0\0\1\0\4test", b"\0\0\0\1\x7f\xff"]
BODIES = [b"\0\5PLAIN", b"\0\x0dSCRAM-SHA-256", b"\0\0\0\5hello", client_first(), plain("alice", "alice-secret")]


@pytest.mark.slow
def test_frames_of_any_kind_are_answered_or_close_the_connection() -> None:
    frames = st.tuples(
        st.sampled_from([*STARTS, b""]), st.sampled_from([*HEADERS, b""]), st.sampled_from([*BODIES, b""])
    )
    with asking_broker() as broker:  # which would say so, had it met an error of its own

        @given(st.lists(frames.map(b"".join) | st.binary(max_size=30), min_size=1, max_size=5))
        def play(sent: list[bytes]) -> None:
            wire = Wire(broker)
            for frame in sent:
                if not wire.is_closed:
                    wire.send(len(frame).to_bytes(4, "big") + frame)
            if not wire.is_closed:
                broker.hang_up(wire.transport)

        play()
        assert not [line for line in broker.said if "unexpected" in line or "error of our own" in line]

"""SCRAM as RFC 7677 has it, and what is told of names that nobody has."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from minibroker.security.sasl import Refusal
from minibroker.security.scram import (
    Bearer,
    Credential,
    ScramExchange,
    ScramSource,
    credential_of,
    decoy_of,
    salted_password,
    unescaped,
)

# The example of RFC 7677.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
MORE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = f"r=rOprNGfwEbeRWgbNEkqO{MORE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
FINAL = f"c=biws,r=rOprNGfwEbeRWgbNEkqO{MORE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
PENCIL = credential_of("sha256", salted_password("sha256", "pencil", SALT, 4096), SALT, 4096)


def decoy(name: str) -> Credential:
    return decoy_of("sha256", b"secret of this broker", name, 4096)


def begin(
    find: Callable[[str], Credential | None] = {"user": PENCIL}.get,
    bearer: Callable[[str], Bearer | None] = lambda token_id: None,
) -> ScramExchange:
    return ScramExchange(ScramSource("sha256", find, bearer, decoy, lambda: MORE, takes_more=False))


def test_the_example_of_the_rfc() -> None:
    exchange = begin()
    assert exchange.respond(FIRST) == CHALLENGE
    assert exchange.respond(FINAL) == SIGNATURE
    assert (exchange.is_complete, exchange.name, exchange.is_token, exchange.expires_ms) == (True, "user", False, None)


FIELDS = [
    (b"c=biws", b"c=eSws"),
    (b"c=biws", b"c=biw="),
    (b"r=rOpr", b"r=rOpx"),
    (b"r=rOpr", b"r=xrOpr"),
    (MORE[-4:].encode(), b""),
    (b"p=dHzb", b"p=AHzb"),
    (b"VQ=", b"VQ=="),
    (b"p=dHzb", b"p=dHzbdHzb"),
    (b",p=", b",q="),
]


@pytest.mark.parametrize(("old", "new"), FIELDS)
def test_every_field_of_the_last_message_counts(old: bytes, new: bytes) -> None:
    exchange = begin()
    exchange.respond(FIRST)
    assert old in FINAL
    with pytest.raises(Refusal) as refused:
        exchange.respond(FINAL.replace(old, new, 1))
    assert refused.value.told is None
    assert not exchange.is_complete


def test_nothing_goes_on_after_a_failure() -> None:
    exchange = begin()
    exchange.respond(FIRST)
    with pytest.raises(Refusal):
        exchange.respond(FINAL.replace(b"p=dHzb", b"p=AHzb"))
    for token in (FINAL, FIRST):
        with pytest.raises(Refusal):
            exchange.respond(token)


def test_a_proof_is_good_once() -> None:
    exchange = begin()
    exchange.respond(FIRST)
    exchange.respond(FINAL)
    with pytest.raises(Refusal):
        exchange.respond(FINAL)


def test_names_that_nobody_has_are_challenged_like_others_and_always_alike() -> None:
    known, unknown, again, other = (
        begin().respond(b"n,,n=%s,r=x" % name).split(b",") for name in (b"user", b"nobody", b"nobody", b"other")
    )
    assert unknown == again
    assert unknown[1] != other[1]
    assert (known[0], known[2]) == (unknown[0], unknown[2])


def test_no_proof_fits_a_name_that_nobody_has() -> None:
    exchange = begin({}.get)
    exchange.respond(FIRST)
    with pytest.raises(Refusal, match="name or password are wrong"):
        exchange.respond(FINAL)
    # Not even the one who knows what is stored of the decoy comes in.
    known = begin({"user": decoy("user")}.get)
    known.respond(FIRST)
    assert not known.is_complete


def test_what_was_hashed_too_few_times_lets_nobody_in() -> None:
    weak = credential_of("sha256", salted_password("sha256", "pencil", SALT, 4095), SALT, 4095)
    challenge = begin({"user": weak}.get).respond(FIRST)
    assert challenge.endswith(b"i=4096")
    assert base64.b64encode(SALT) not in challenge


def test_a_token_stands_for_its_owner() -> None:
    exchange = begin({}.get, lambda token_id: Bearer("alice", 5000, PENCIL) if token_id == "user" else None)
    exchange.respond(FIRST + b",tokenauth=true")
    assert (exchange.name, exchange.is_token, exchange.expires_ms) == ("alice", True, 5000)


@pytest.mark.parametrize(("text", "name"), [("a=2Cb", "a,b"), ("=3D2C", "=2C"), ("a b", "a b")])
def test_commas_and_equals_of_names_are_escaped(text: str, name: str) -> None:
    assert unescaped(text) == name


@pytest.mark.parametrize("text", ["", "a=b", "a=2c", "=", "ä", "a\0"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(Refusal):
        unescaped(text)


def test_stored_credentials_show_nothing() -> None:
    assert repr(PENCIL) == "Credential()"

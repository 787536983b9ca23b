"""Tokens of OAUTHBEARER: checked against the keys of a file, or, where that is asked for, not at all."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from minibroker.security.jwks import read_jwks
from minibroker.security.oauth import ClaimChecks, WrongToken, check_signed, check_unsecured
from minibroker.simulation.loop import START_MS
from tests.security.conversations import bearer
from tests.security.wire import Wire, asking_broker

NOW_S = START_MS // 1000
RSA = rsa.generate_private_key(65537, 2048)
OTHER_RSA = rsa.generate_private_key(65537, 2048)
CURVES = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
EC = {name: ec.generate_private_key(curve) for name, curve in CURVES.items()}


def text_of(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def number(value: int) -> str:
    return text_of(value.to_bytes((value.bit_length() + 7) // 8))


def rsa_jwk(key: Any, **more: str) -> dict[str, str]:
    public = key.public_key().public_numbers()
    return {"kty": "RSA", "n": number(public.n), "e": number(public.e), **more}


def ec_jwk(curve: str, **more: str) -> dict[str, str]:
    public = EC[curve].public_key().public_numbers()
    return {"kty": "EC", "crv": curve, "x": number(public.x), "y": number(public.y), **more}


FILE = {
    "keys": [
        rsa_jwk(RSA, kid="one", use="sig"),
        rsa_jwk(RSA, kid="four", alg="RS256"),
        ec_jwk("P-256", kid="two", alg="ES256"),
        ec_jwk("P-384"),
        ec_jwk("P-521"),
        {"kty": "oct", "k": "c2VjcmV0"},
        rsa_jwk(OTHER_RSA, kid="for encryption", use="enc"),
    ]
}
CURVE_OF = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


def sign(algorithm: str, data: bytes, key: Any = RSA) -> bytes:
    digest = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}[algorithm[2:]]
    if algorithm.startswith("ES"):
        own = EC[CURVE_OF[algorithm]] if key is RSA else key
        size_bytes = (EC[CURVE_OF[algorithm]].key_size + 7) // 8
        return b"".join(each.to_bytes(size_bytes) for each in decode_dss_signature(own.sign(data, ec.ECDSA(digest))))
    if algorithm.startswith("PS"):
        return key.sign(data, padding.PSS(padding.MGF1(digest), digest.digest_size), digest)  # type: ignore[no-any-return]
    return key.sign(data, padding.PKCS1v15(), digest)  # type: ignore[no-any-return]


def claims(**changed: Any) -> dict[str, Any]:
    found = {"sub": "carol", "iat": NOW_S - 10, "exp": NOW_S + 60, "iss": "https://us", "aud": "kafka", **changed}
    return {name: value for name, value in found.items() if value is not None}


def token(
    body: dict[str, Any] | None = None,
    header: dict[str, Any] | None = None,
    *,
    algorithm: str = "RS256",
    key: Any = RSA,
    change: Callable[[bytes], bytes] = lambda signature: signature,
) -> str:
    parts = [{"alg": algorithm, **(header or {})}, claims() if body is None else body]
    signed = ".".join(text_of(json.dumps(part).encode()) for part in parts)
    return f"{signed}.{text_of(change(sign(algorithm, signed.encode(), key)))}"


CHECKS = ClaimChecks(lambda: NOW_S * 1000, 30_000, is_strict=True, audiences=["kafka"], issuer="https://us")


def check(text: str, checks: ClaimChecks = CHECKS) -> tuple[str, int]:
    return check_signed(text, read_jwks(json.dumps(FILE)), checks)


@pytest.mark.parametrize("algorithm", [f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)])
def test_a_token_signed_by_a_key_of_the_file_lets_in(algorithm: str) -> None:
    assert check(token(algorithm=algorithm)) == ("carol", (NOW_S + 60) * 1000)


TWICE = text_of(b'{"alg":"RS256","alg":"none"}')
HEADER = text_of(b'{"alg":"none"}')
SIGNATURES: dict[str, tuple[str, str]] = {
    "none": (f"{HEADER}.{text_of(json.dumps(claims()).encode())}.", "no signature"),
    "none with a signature": (f"{HEADER}.{text_of(json.dumps(claims()).encode())}.AAAA", "no key"),
    "another key": (token(key=OTHER_RSA), "no key"),
    "another key, by its name": (token(header={"kid": "for encryption"}, key=OTHER_RSA), "no key"),
    "another algorithm than the only one of a key of RSA": (token(header={"kid": "four"}, algorithm="PS256"), "no key"),
    "the name of no key": (token(header={"kid": "three"}), "no key"),
    "the name of another key": (token(header={"kid": "two"}), "no key"),
    "a shared secret": (token(header={"alg": "HS256"}), "no key"),
    "another algorithm of the key": (token(header={"alg": "RS384"}), "no key"),
    "an algorithm of another kind": (token(header={"alg": "ES256"}), "no key"),
    "another algorithm than the key is for": (token(header={"alg": "ES384"}, algorithm="ES256"), "no key"),
    "a curve of another algorithm": (token(algorithm="ES384", key=EC["P-256"]), "no key"),
    "an algorithm that is no text": (token(header={"alg": ["RS256"]}), "no key"),
    "a cut signature": (token(change=lambda signature: signature[:-1]), "no key"),
    "a cut signature of a curve": (token(algorithm="ES256", change=lambda signature: signature[:-1]), "no key"),
    "extensions": (token(header={"crit": ["b64"], "b64": False}), "must be understood"),
    "two parts": ("e30.e30", "not header"),
    "four parts": (token() + ".e30", "not header"),
    "another alphabet": ("+///.e30.AAAA", "not JSON"),
    "no object": (f"{text_of(b'[]')}.e30.AAAA", "not an object"),
    "a name twice": (f"{TWICE}.e30.AAAA", "not JSON"),
    "very deep": (f"{text_of(b'[' * 100_000)}.e30.AAAA", "not JSON"),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_other_signatures_do_not(name: str) -> None:
    text, words = SIGNATURES[name]
    with pytest.raises(WrongToken, match=words):
        check(text)


CLAIMS: list[tuple[dict[str, Any], str]] = [
    ({"exp": NOW_S - 30}, "expired"),
    ({"exp": NOW_S - 29, "iat": NOW_S - 90}, ""),
    ({"exp": None}, "no exp"),
    ({"exp": "1"}, "no time"),
    ({"exp": True}, "no time"),
    ({"exp": 1e300}, "no time"),
    ({"iat": None}, "no iat"),
    ({"iat": NOW_S + 31}, "future"),
    ({"iat": NOW_S + 30}, ""),
    ({"iat": NOW_S + 60}, "before it was issued"),
    ({"nbf": NOW_S + 31}, "not valid yet"),
    ({"nbf": NOW_S + 30}, ""),
    ({"iss": None}, "iss"),
    ({"iss": "https://us/"}, "iss"),
    ({"aud": None}, "aud"),
    ({"aud": ["other"]}, "aud"),
    ({"aud": ["other", "kafka"]}, ""),
    ({"aud": "kafka "}, "aud"),
    ({"scope": ["a", "a"]}, "scope"),
    ({"scope": ["a", " "]}, "scope"),
    ({"scope": [7]}, "scope"),
    ({"scope": ["a", "b"]}, ""),
    ({"sub": None}, "no sub"),
    ({"sub": " "}, "no sub"),
    ({"sub": 7}, "no sub"),
]


@pytest.mark.parametrize(("changed", "words"), CLAIMS, ids=str)
def test_claims_have_to_be_right(changed: dict[str, Any], words: str) -> None:
    if not words:
        assert check(token(claims(**changed))).name == "carol"  # type: ignore[attr-defined]
        return
    with pytest.raises(WrongToken, match=words):
        check(token(claims(**changed)))


BROKEN_FILES = [
    ("", "not JSON"),
    ("[]", '{"keys"'),
    ('{"keys": []}', "no key for signatures"),
    ('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "no key for signatures"),
    ('{"keys": [7]}', r"keys\[0\]"),
    ('{"keys": [{"kty": "RSA", "n": "AQAB"}]}', r"keys\[0\]"),
    (json.dumps({"keys": [{**ec_jwk("P-256"), "y": "AQAB"}]}), r"keys\[0\]"),
    (json.dumps({"keys": [{**ec_jwk("P-256"), "crv": "secp256k1"}]}), "curve"),
    (json.dumps({"keys": [rsa_jwk(rsa.generate_private_key(65537, 1024))]}), "1024 bits"),
]


@pytest.mark.parametrize(("text", "words"), BROKEN_FILES)
def test_files_without_keys_are_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_jwks(text)


def test_unsecured_tokens_need_the_scopes() -> None:
    checks = ClaimChecks(lambda: NOW_S * 1000, scopes=["a", "b"])
    text = f"{HEADER}.{text_of(json.dumps(claims(scope=['b', 'a', 'c'])).encode())}."
    assert check_unsecured(text, checks).name == "carol"
    with pytest.raises(WrongToken) as refused:
        check_unsecured(f"{HEADER}.{text_of(json.dumps(claims(scope='a')).encode())}.", checks)
    assert refused.value.scope == "[a, b]"


# Settings

OAUTH = "listener.name.sasl_plaintext.oauthbearer"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


def signed_settings(directory: Path, **changed: object) -> dict[str, object]:
    (directory / "jwks.json").write_text(json.dumps(FILE))
    return {
        f"{OAUTH}.sasl.jaas.config": None,
        f"{OAUTH}.sasl.server.callback.handler.class": HANDLER,
        "sasl.oauthbearer.jwks.endpoint.url": f"file:{directory / 'jwks.json'}",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://us",
        **{f"sasl.oauthbearer.{name.replace('_', '.')}": value for name, value in changed.items()},
    }


def let_in(settings: dict[str, object], text: str) -> str | None:
    """Return the name of whom a broker with these settings lets in by a token, None if it does not."""
    with asking_broker(**settings) as broker:
        wire = Wire(broker)
        wire.log_in("OAUTHBEARER", bearer(text))
        return wire.connection.principal.name if wire.connection.session.is_complete else None


@pytest.mark.setting("sasl.oauthbearer.jwks.endpoint.url", "sasl.server.callback.handler.class")
def test_the_file_and_the_handler_say_which_tokens_are_taken(tmp_path: Path) -> None:
    settings = signed_settings(tmp_path)
    assert let_in(settings, token()) == "carol"
    assert let_in(settings, token(key=OTHER_RSA)) is None
    assert let_in(settings, SIGNATURES["none"][0]) is None
    assert let_in({}, token()) is None  # there none can be checked


@pytest.mark.setting("sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer")
def test_audience_and_issuer_are_those_of_the_settings(tmp_path: Path) -> None:
    settings = signed_settings(tmp_path, expected_audience="orders,bills", expected_issuer="https://them")
    assert let_in(settings, token()) is None
    assert let_in(settings, token(claims(aud="bills", iss="https://them"))) == "carol"
    assert let_in(settings, token(claims(aud="bills"))) is None
    assert let_in(settings, token(claims(iss="https://them"))) is None


@pytest.mark.setting("sasl.oauthbearer.allow.unverified.audience", "sasl.oauthbearer.allow.unverified.issuer")
def test_any_audience_and_issuer_are_taken_if_somebody_says_so(tmp_path: Path) -> None:
    nobody = {"expected_audience": None, "expected_issuer": None}
    anything = {"allow_unverified_audience": "true", "allow_unverified_issuer": "true"}
    settings = signed_settings(tmp_path, **nobody, **anything)
    assert let_in(settings, token(claims(aud=None, iss=None))) == "carol"
    assert let_in(settings, token(claims(aud="x", iss="y"))) == "carol"


@pytest.mark.setting("sasl.oauthbearer.clock.skew.seconds")
def test_clocks_may_be_as_wrong_as_the_settings_say(tmp_path: Path) -> None:
    late = token(claims(exp=NOW_S - 5))
    assert let_in(signed_settings(tmp_path, clock_skew_seconds=10), late) == "carol"
    assert let_in(signed_settings(tmp_path, clock_skew_seconds=1), late) is None


@pytest.mark.setting("sasl.oauthbearer.sub.claim.name")
def test_the_name_is_in_the_claim_of_the_settings(tmp_path: Path) -> None:
    assert let_in(signed_settings(tmp_path, sub_claim_name="email"), token(claims(email="c@us"))) == "c@us"


@pytest.mark.setting("sasl.oauthbearer.scope.claim.name")
def test_scopes_are_in_the_claim_of_the_settings(tmp_path: Path) -> None:
    doubled = token(claims(scope=["a", "a"]))
    assert let_in(signed_settings(tmp_path), doubled) is None
    assert let_in(signed_settings(tmp_path, scope_claim_name="roles"), doubled) == "carol"


def test_a_token_lets_in_for_as_long_as_it_lives(tmp_path: Path) -> None:
    with asking_broker(**signed_settings(tmp_path)) as broker:
        wire = Wire(broker)
        answer = wire.log_in("OAUTHBEARER", bearer(token()))
        assert answer.session_lifetime_ms == 60_000
        broker.pass_ms(59_999)
        assert wire.serves()
        broker.pass_ms(2)
        assert not wire.serves()
        assert wire.is_closed

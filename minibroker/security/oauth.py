"""OAUTHBEARER: a token that somebody else has issued (RFC 7628), a JSON web token in Kafka.

    n,[a=AUTHORIZATION ID],^A auth=Bearer TOKEN ^A [NAME=VALUE ^A ...] ^A

A token is three parts in base64: header, claims, signature. Signed ones are checked against the keys of the operator's
file (jwks.py); unsigned ones, for tests, only where the configuration asks for those.
What must hold: where keys are wanted, no token without a signature gets in, nor one signed by another kind of key than
the file has. Whoever shows a token that is not taken is told Kafka's JSON, and then that the login has failed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from minibroker.security.sasl import Exchange, Refusal, utf8
from minibroker.security.scram import unescaped

MARK: Final = "\x01"
PAIRS: Final = re.compile(r"(?:[A-Za-z]+=[ -~\t\r\n]+\x01)*")
AUTHORIZATION: Final = re.compile(r"bearer +([\w\-~+/.=]+)", re.ASCII | re.IGNORECASE)


class WrongToken(Exception):
    """A token that is not taken, and why; what is in it is not in the text."""

    def __init__(self, reason: str, scope: str | None = None):
        super().__init__(reason)
        self.scope = scope  # that it should have


class Bearer(NamedTuple):
    """Whom a token is for."""

    name: str
    expires_ms: int


Check = Callable[[str], Bearer]


class OAuthExchange(Exchange):
    """One login by OAUTHBEARER."""

    def __init__(self, check: Check):
        self._check = check
        self._failure: tuple[str, str] | None = None  # what the client has been told, and what people are

    def respond(self, token: bytes) -> bytes:
        if self._failure is not None:
            told, reason = self._failure
            raise Refusal(reason, told if token == MARK.encode() else None)
        authorization_id, text = parse_initial_response(utf8(token))
        try:
            bearer = self._check(text)
        except WrongToken as wrong:
            status = "invalid_token" if wrong.scope is None else "insufficient_scope"
            scope = "" if wrong.scope is None else f', "scope":"{wrong.scope}"'
            told = f'{{"status":"{status}"{scope}}}'
            self._failure = told, str(wrong)
            return told.encode()
        if authorization_id not in ("", bearer.name):
            told = (
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({bearer.name})"
            )
            raise Refusal("it wants to act as somebody else", told, bearer.name)
        self.name, self.expires_ms, self.is_complete = bearer.name, bearer.expires_ms, True
        return b""


def parse_initial_response(text: str) -> tuple[str, str]:
    """Return the authorization id and the token of a client's message; extensions are looked at, and mean nothing."""
    header, mark, rest = text.partition(MARK)
    flag, comma, authorization_id = header.partition(",")
    is_message = flag == "n" and comma and authorization_id.endswith(",") and mark and rest.endswith(MARK)
    authorization_id = authorization_id[:-1]
    if not is_message or authorization_id[:2] not in ("", "a=") or authorization_id == "a=":
        raise Refusal("its message is not of OAUTHBEARER")
    pairs = MARK + rest.removesuffix(MARK)
    if not PAIRS.fullmatch(pairs, 1):
        raise Refusal("its message is not of OAUTHBEARER")
    brought = AUTHORIZATION.fullmatch(pairs.rpartition(f"{MARK}auth=")[2].partition(MARK)[0])
    if f"{MARK}auth=" not in pairs or brought is None:
        raise Refusal("it brings no bearer token")
    return unescaped(authorization_id[2:]) if authorization_id else "", brought[1]


class ClaimChecks(NamedTuple):
    """What the claims of a token have to say."""

    now_ms: Callable[[], int]
    skew_ms: int = 0
    name_claim: str = "sub"
    scope_claim: str = "scope"
    scopes: Sequence[str] = ()  # that a token needs
    is_strict: bool = False  # as for signed tokens: they have an iat, and their scopes make sense
    audiences: Sequence[str] | None = None  # None: any
    issuer: str | None = None  # None: any

    def bearer(self, claims: Mapping[str, Any]) -> Bearer:
        """Return whom a token with these claims is for, or raise WrongToken."""
        expires_ms, issued_ms, begins_ms = (_milliseconds(claims, name) for name in ("exp", "iat", "nbf"))
        now_ms = self.now_ms()
        if expires_ms is None:
            raise WrongToken("it has no exp: it would never end")
        if expires_ms < 0 or now_ms - self.skew_ms >= expires_ms:
            raise WrongToken("it has expired")
        if issued_ms is None and self.is_strict:
            raise WrongToken("it has no iat")
        if issued_ms is not None and (issued_ms < 0 or expires_ms <= issued_ms):
            raise WrongToken("it ends before it was issued")
        if issued_ms is not None and issued_ms > now_ms + self.skew_ms:
            raise WrongToken("it is issued in the future")
        if begins_ms is not None and (begins_ms > now_ms + self.skew_ms or expires_ms <= begins_ms):
            raise WrongToken("it is not valid yet")
        self._check_origin(claims)
        self._check_scopes(claims.get(self.scope_claim))
        name = claims.get(self.name_claim)
        if not isinstance(name, str) or not name.strip():
            raise WrongToken(f"it has no {self.name_claim}")
        return Bearer(name.strip(), expires_ms)

    def _check_origin(self, claims: Mapping[str, Any]) -> None:
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise WrongToken("its iss is another one than sasl.oauthbearer.expected.issuer")
        if self.audiences is not None:
            found = claims.get("aud")
            if not any(each in self.audiences for each in (found if isinstance(found, list) else [found])):
                raise WrongToken("its aud is none of sasl.oauthbearer.expected.audience")

    def _check_scopes(self, found: Any) -> None:
        given = found if isinstance(found, list) else [found]
        names = {each.strip() for each in given if isinstance(each, str)}
        if self.is_strict and found is not None and (len(names) < len(given) or "" in names):
            raise WrongToken(f"its {self.scope_claim} has what is no scope, or one twice")
        if not names.issuperset(self.scopes):
            raise WrongToken("it has not all the scopes that are wanted", f"[{', '.join(self.scopes)}]")


def check_unsecured(token: str, checks: ClaimChecks) -> Bearer:
    """Return whom a token without a signature is for: anybody can write one."""
    header, claims, signature = _parts(token)
    if parse_object(header).get("alg") != "none":
        raise WrongToken("its alg is not none")
    if signature:
        raise WrongToken("it has a signature, and none can be checked here")
    return checks.bearer(parse_object(claims))


def check_signed(token: str, keys: Any, checks: ClaimChecks) -> Bearer:
    """Return whom a token is for that one of the keys has signed."""
    header, claims, signature = _parts(token)
    if not signature:
        raise WrongToken("it has no signature")
    described = parse_object(header)
    if "crit" in described:
        raise WrongToken("its header has extensions that must be understood")
    signed = token[: token.rindex(".")].encode()
    if not keys.verify(described, signed, from_base64url(signature)):
        raise WrongToken("no key of the file fits its signature")
    return checks.bearer(parse_object(claims))


def _parts(token: str) -> tuple[str, str, str]:
    parts = token.split(".")
    if len(parts) != 3:
        raise WrongToken("it is not header, claims and signature")
    return parts[0], parts[1], parts[2]


def parse_object(part: str) -> dict[str, Any]:
    """Return the JSON of a part of a token."""
    try:
        found = json.loads(from_base64url(part), object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise WrongToken("it is not JSON in base64") from None
    if not isinstance(found, dict):
        raise WrongToken("it is not an object of JSON")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name twice: who reads it next may see the other value")
    return found


def from_base64url(text: str) -> bytes:
    from base64 import urlsafe_b64decode

    stripped = text.rstrip("=")
    try:
        if "+" in text or "/" in text:
            raise ValueError("of another alphabet")
        return urlsafe_b64decode(stripped + "=" * (-len(stripped) % 4))
    except ValueError:
        raise WrongToken("it is not JSON in base64") from None


def _milliseconds(claims: Mapping[str, Any], name: str) -> int | None:
    """Return a time of a token, which has seconds, whole or not."""
    seconds = claims.get(name)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not -1e12 < seconds < 1e12:
        raise WrongToken(f"its {name} is no time")
    return round(seconds * 1000)

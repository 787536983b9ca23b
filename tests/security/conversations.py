"""Conversations of a client that logs in, right and wrong, played to whatever answers at an address.

What comes back is told as plain values: of a token that chance has a part in only the form. Real Kafka's answers to the
same are golden (tests/interop/sasl_answers.py makes them).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from minibroker.protocol.framing import decode_response, encode_request
from minibroker.protocol.messages.api_versions import ApiVersionsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from minibroker.protocol.messages.sasl_handshake import SaslHandshakeRequest

PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret"}
REAUTH_MS = 60_000  # of PLAIN
NONCE = "fyko+d2lbbFgONRv9qkxdawL"
DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
PATIENCE_S = 3
FAILURES = (33, 58)  # of logins: nothing comes behind them
NOW_S = 1_900_000_000  # far enough in the future for tokens that are good

Step = tuple[Any, ...]
Conversation = list[Step]


def settings(name: str) -> dict[str, str]:
    """Return the settings that a broker needs; name: of its listener, in lower case."""
    security = "org.apache.kafka.common.security"
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    prefix = f"listener.name.{name}"
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "0",
        f"{prefix}.plain.connections.max.reauth.ms": str(REAUTH_MS),
        f"{prefix}.plain.sasl.jaas.config": f"{security}.plain.PlainLoginModule required {users};",
        f"{prefix}.scram-sha-256.sasl.jaas.config": f"{security}.scram.ScramLoginModule required;",
        f"{prefix}.scram-sha-512.sasl.jaas.config": f"{security}.scram.ScramLoginModule required;",
        f"{prefix}.oauthbearer.sasl.jaas.config": (
            f"{security}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker" unsecuredValidatorRequiredScope="kafka";'
        ),
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": (
            f"{security}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
        ),
    }


# Tokens


def plain(name: str, password: str, authorization_id: str = "") -> bytes:
    return f"{authorization_id}\0{name}\0{password}".encode()


def client_first(name: str = "alice", authorization_id: str = "", more: str = "") -> bytes:
    identity = f"a={authorization_id}" if authorization_id else ""
    return f"n,{identity},n={name},r={NONCE}{more}".encode()


def client_final(
    mechanism: str,
    first: bytes,
    challenge: bytes,
    password: str,
    change: Callable[[str], str] = lambda text: text,
    *,
    nonce: str | None = None,
    binding: str | None = None,
) -> bytes:
    """Return the proof; change: what is done to it when it is made. nonce, binding: others, and signed as they are."""
    digest, text = DIGESTS[mechanism], challenge.decode()
    fields = dict(part.split("=", 1) for part in text.split(","))
    header, bare = re.fullmatch("([^,]*,[^,]*,)(.*)", first.decode()).groups()  # type: ignore[union-attr]
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    key = hmac.digest(salted, b"Client Key", digest)
    channel = base64.b64encode((header if binding is None else binding).encode()).decode()
    final = f"c={channel},r={fields['r'] if nonce is None else nonce}"
    signed = f"{bare},{text},{final}".encode()
    mask = hmac.digest(hashlib.new(digest, key).digest(), signed, digest)
    proof = bytes(one ^ other for one, other in zip(key, mask, strict=True))
    return change(f"{final},p={base64.b64encode(proof).decode()}").encode()


def jwt(claims: dict[str, Any], header: dict[str, Any] | None = None, signature: str = "") -> str:
    parts = [json.dumps(each).encode() for each in (header or {"alg": "none"}, claims)]
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), signature])


def bearer(token: str, authorization_id: str = "", more: str = "") -> bytes:
    identity = f"a={authorization_id}" if authorization_id else ""
    return f"n,{identity},\x01auth=Bearer {token}\x01{more}\x01".encode()


def claims(**changed: Any) -> dict[str, Any]:
    found = {"sub": "carol", "iat": 1_700_000_000, "exp": NOW_S, "scope": ["kafka", "other"], **changed}
    return {name: value for name, value in found.items() if value is not None}


# Conversations: each step is what is sent, and one answer or the end comes back.


def login(mechanism: str, *tokens: Any, handshake: int = 1, version: int | None = 2) -> Conversation:
    if handshake == 0:
        version = None
    return [("handshake", handshake, mechanism), *(("token", version, token) for token in tokens)]


def scram(
    mechanism: str = "SCRAM-SHA-256",
    first: bytes | None = None,
    password: str = "alice-secret",
    change: Callable[[str], str] = lambda text: text,
    **named: Any,
) -> Conversation:
    begun = client_first() if first is None else first
    final = lambda challenge: client_final(mechanism, begun, challenge, password, change)  # noqa: E731
    return login(mechanism, begun, final, **named)


def replaced(old: str, new: str) -> Callable[[str], str]:
    return lambda text: re.sub(old, new, text, count=1)


ALICE, BOB = plain("alice", "alice-secret"), plain("bob", "bob-secret")
GOOD = bearer(jwt(claims()))
METADATA = ("metadata", 1)

CONVERSATIONS: dict[str, Conversation] = {
    "plain": [*login("PLAIN", ALICE), METADATA],
    "plain, v0 of SaslAuthenticate": [*login("PLAIN", ALICE, version=0), METADATA],
    "plain, v1 of SaslAuthenticate": login("PLAIN", ALICE, version=1),
    "plain, bare tokens": [*login("PLAIN", ALICE, handshake=0), METADATA],
    "plain, bare tokens, wrong": login("PLAIN", plain("alice", "x"), handshake=0),
    "plain, versions first": [("versions", 3), *login("PLAIN", ALICE), METADATA],
    "plain, an unknown version of ApiVersions first": [("versions", 99), ("versions", 0), *login("PLAIN", ALICE)],
    "plain, wrong password": login("PLAIN", plain("alice", "bob-secret")),
    "plain, unknown user": login("PLAIN", plain("nobody", "x")),
    "plain, user in other letters": login("PLAIN", plain("Alice", "alice-secret")),
    "plain, no user": login("PLAIN", plain("", "x")),
    "plain, no password": login("PLAIN", plain("alice", "")),
    "plain, two parts": login("PLAIN", b"alice\0alice-secret"),
    "plain, one part": login("PLAIN", b"alice"),
    "plain, nothing": login("PLAIN", b""),
    "plain, four parts": login("PLAIN", b"\0alice\0alice-secret\0"),
    "plain, five parts": login("PLAIN", b"\0alice\0alice-secret\0\0"),
    "plain, acting as herself": login("PLAIN", plain("alice", "alice-secret", "alice")),
    "plain, acting as bob": login("PLAIN", plain("alice", "alice-secret", "bob")),
    "plain, acting as bob, wrong password": login("PLAIN", plain("alice", "x", "bob")),
    "a mechanism that is not offered": [("handshake", 1, "GSSAPI")],
    "a mechanism that is not offered, v0": [("handshake", 0, "GSSAPI")],
    "a mechanism in other letters": [("handshake", 1, "plain")],
    "no mechanism": [("handshake", 1, "")],
    "a request before": [METADATA],
    "a request after versions": [("versions", 3), METADATA],
    "a token before": [("token", 2, ALICE)],
    "versions twice": [("versions", 3), ("versions", 3)],
    "versions in place of a token": [*login("PLAIN"), ("versions", 0)],
    "a second handshake in place of a token": [*login("PLAIN"), ("handshake", 1, "PLAIN")],
    "a handshake afterwards": [*scram(), ("handshake", 1, "SCRAM-SHA-256")],
    "a token afterwards": [*scram(), ("token", 2, ALICE)],
    "versions afterwards": [*login("PLAIN", ALICE), ("versions", 0)],
    # Again
    "again": [*login("PLAIN", ALICE), *login("PLAIN", ALICE), METADATA],
    "again as somebody else": [*login("PLAIN", ALICE), *login("PLAIN", BOB)],
    "again with a wrong password": [*login("PLAIN", ALICE), *login("PLAIN", plain("alice", "x"))],
    "again by another mechanism": [*login("PLAIN", ALICE), *scram()],
    "again by a mechanism that is not offered": [*login("PLAIN", ALICE), ("handshake", 1, "GSSAPI")],
    "again and at once again": [*login("PLAIN", ALICE), *login("PLAIN", ALICE), ("handshake", 1, "PLAIN")],
    "again, and a request between": [*login("PLAIN", ALICE), ("handshake", 1, "PLAIN"), METADATA],
    # OAUTHBEARER
    "oauth": [*login("OAUTHBEARER", GOOD), METADATA],
    "oauth, expired": login("OAUTHBEARER", bearer(jwt(claims(exp=1_700_000_001))), b"\x01"),
    "oauth, expired, and something else": login("OAUTHBEARER", bearer(jwt(claims(exp=1_700_000_001))), b"x"),
    "oauth, without an end": login("OAUTHBEARER", bearer(jwt(claims(exp=None)))),
    "oauth, an end that is no number": login("OAUTHBEARER", bearer(jwt(claims(exp="soon")))),
    "oauth, from the future": login("OAUTHBEARER", bearer(jwt(claims(iat=NOW_S - 10)))),
    "oauth, ending before it began": login("OAUTHBEARER", bearer(jwt(claims(iat=NOW_S + 10)))),
    "oauth, without a subject": login("OAUTHBEARER", bearer(jwt(claims(sub=None)))),
    "oauth, a subject that is no text": login("OAUTHBEARER", bearer(jwt(claims(sub=7)))),
    "oauth, without the scope": login("OAUTHBEARER", bearer(jwt(claims(scope="other"))), b"\x01"),
    "oauth, scope as text": login("OAUTHBEARER", bearer(jwt(claims(scope="kafka")))),
    "oauth, signed": login("OAUTHBEARER", bearer(jwt(claims(), {"alg": "HS256"}, "abcd"))),
    "oauth, a signature without an algorithm": login("OAUTHBEARER", bearer(jwt(claims(), None, "abcd"))),
    "oauth, two parts": login("OAUTHBEARER", bearer("e30.e30")),
    "oauth, truncated": login("OAUTHBEARER", bearer(jwt(claims())[:40])),
    "oauth, no token": login("OAUTHBEARER", b"n,,\x01auth=Bearer \x01\x01"),
    "oauth, no auth": login("OAUTHBEARER", b"n,,\x01x=y\x01\x01"),
    "oauth, not ended": login("OAUTHBEARER", b"n,,\x01auth=Bearer abcd\x01"),
    "oauth, acting as herself": login("OAUTHBEARER", bearer(jwt(claims()), "carol")),
    "oauth, acting as another": login("OAUTHBEARER", bearer(jwt(claims()), "dave")),
    "oauth, with extensions": login("OAUTHBEARER", bearer(jwt(claims()), more="traceId=123\x01")),
    "oauth, with a strange extension": login("OAUTHBEARER", bearer(jwt(claims()), more="trace-id=123\x01")),
    "oauth, again as another": [*login("OAUTHBEARER", GOOD), *login("OAUTHBEARER", bearer(jwt(claims(sub="dave"))))],
    # SCRAM
    "scram, 256": [*scram(), METADATA],
    "scram, 512": [*scram("SCRAM-SHA-512"), METADATA],
    "scram, bare tokens": [*scram(handshake=0), METADATA],
    "scram, wrong password": scram(password="x"),
    "scram, wrong password, bare tokens": scram(password="x", handshake=0),
    "scram, acting as herself": scram(first=client_first(authorization_id="alice")),
    "scram, acting as bob": scram(first=client_first(authorization_id="bob"))[:2],
    "scram, an extension": scram(first=client_first(more=",ext=1")),
    "scram, tokenauth=false": scram(first=client_first(more=",tokenauth=false")),
    "scram, the proof of another": scram(change=replaced("p=....", "p=AAAA")),
    "scram, no proof": scram(change=replaced(",p=.*", "")),
    "scram, a proof that is not base64": scram(change=replaced("p=..", "p=!!")),
    "scram, the nonce of the client alone": scram(change=replaced("r=[^,]*", f"r={NONCE}")),
    "scram, another nonce": scram(change=replaced(f"r={re.escape(NONCE)}", f"r={NONCE[:-1]}M")),
    "scram, a nonce that goes on": scram(change=replaced("(r=[^,]*)", r"\1x")),
    "scram, no nonce": scram(change=replaced(",r=[^,]*", "")),
    "scram, channel binding that is not base64": scram(change=replaced("c=biws", "c=!iws")),
    "scram, nothing for a proof": [*scram()[:2], ("token", 2, b"")],
    "scram, the first message again": [*scram()[:2], ("token", 2, client_first())],
    **{
        f"scram, first message {text!r}": login("SCRAM-SHA-256", text.encode())
        for text in (
            "",
            "n,,",
            "n,,n=alice",
            "n,,r=abc,n=alice",
            "n,,n=,r=abc",
            "n,,n=alice,r=",
            "n,,n=alice,r=a b",
            "n,,n=al=ice,r=abc",
            "n,,n=al=2Dice,r=abc",
            "n,,n=alice,r=abc,x",
            "n,,n=alice,r=abc,1=x",
            "y,,n=alice,r=abc",
            "p=tls-unique,,n=alice,r=abc",
            "n,b=alice,n=alice,r=abc",
            "n=alice,r=abc",
        )
    },
}
# Of which we tell less, or are stricter: RFC 5802 wants the one, and nobody is to learn which names there are. Where
# an exception of Java closes the connection without a word, we say that the login has failed.
OUR_WAY: dict[str, Conversation] = {
    "scram, unknown user": scram(first=client_first("nobody")),
    "scram, no such token": scram(first=client_first("nobody", more=",tokenauth=true")),
    "scram, more before the nonce": scram(change=replaced("r=", "r=x")),
    "scram, channel binding of another header": scram(change=replaced("c=biws", "c=eSws")),
    "oauth, another scheme": login("OAUTHBEARER", b"n,,\x01auth=Basic abcd\x01\x01"),
    "scram, a short proof": scram(change=replaced("p=.*", "p=AAAA")),
    "scram, an empty proof": scram(change=replaced("p=.*", "p=")),
    "scram, an extension that must be understood": login("SCRAM-SHA-256", b"n,,m=x,n=alice,r=abc"),
}


# Playing


async def play(host: str, port: int, conversation: Conversation) -> list[Any]:
    """Return what came back, step by step; the last one is "closed" where it was."""
    reader, writer = await asyncio.open_connection(host, port)
    heard: list[Any] = []
    token = b""
    try:
        for number, step in enumerate(conversation):
            frame, read = _frame(step, number, token)
            writer.write(frame)
            try:
                length = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), PATIENCE_S), "big")
                told, token = read(await reader.readexactly(length))
            except TimeoutError:
                heard.append("no answer")
                break
            except (asyncio.IncompleteReadError, ConnectionError):
                heard.append("closed")
                break
            heard.append(told)
            if told.get("error") in FAILURES:
                rest = await asyncio.wait_for(reader.read(), PATIENCE_S)
                heard.append("more" if rest else "closed")
                break
    finally:
        writer.close()
    return heard


def _frame(step: Step, number: int, token: bytes) -> tuple[bytes, Callable[[bytes], tuple[Any, bytes]]]:
    """Return what a step sends, and what reads the answer."""
    kind, version, *more = step
    if kind == "token":
        sent = more[0](token) if callable(more[0]) else more[0]
        if version is None:
            return len(sent).to_bytes(4, "big") + sent, lambda answer: ({"token": form_of(answer)}, answer)
        request: Any = SaslAuthenticateRequest(auth_bytes=sent)
    elif kind == "handshake":
        request = SaslHandshakeRequest(mechanism=more[0])
    elif kind == "metadata":
        request = MetadataRequest(topics=[])
    elif version == 99:  # nobody knows how it looks
        return b"\0\0\0\x0b\0\x12\0\x63\0\0\0\x07\xff\xff\0", lambda answer: ({"error": answer[5]}, b"")
    else:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")

    def read(answer: bytes) -> tuple[Any, bytes]:
        _, message = decode_response(answer, request.api, version)
        return told_of(message), bytes(getattr(message, "auth_bytes", b""))

    return b"".join(encode_request(request, version, number, "test")), read


def told_of(message: Any) -> dict[str, Any]:
    """Return what an answer says, but for what chance or the hour has put into it."""
    if not hasattr(message, "error_code"):
        return {"answer": type(message).__name__}
    found: dict[str, Any] = {"error": message.error_code}
    if hasattr(message, "auth_bytes"):
        found |= {"message": message.error_message, "token": form_of(bytes(message.auth_bytes))}
        lifetime_ms = message.session_lifetime_ms
        found["lifetime"] = lifetime_ms if lifetime_ms in (0, REAUTH_MS) else "some"
    elif hasattr(message, "mechanisms"):
        found["mechanisms"] = sorted(message.mechanisms)
    return found


def form_of(token: bytes) -> str:
    text = token.decode()
    text = re.sub(r"^r=([^,]*),s=[^,]+,", lambda found: f"r={'+' if found[1].startswith(NONCE) else '?'},s=?,", text)
    return re.sub("^v=.+", "v=?", text)


def cases() -> Iterator[tuple[str, Conversation]]:
    yield from CONVERSATIONS.items()
    yield from OUR_WAY.items()

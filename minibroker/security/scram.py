"""SCRAM: a proof that both sides know the password, without sending it (RFC 5802), as Kafka's ScramSaslServer has it.

    client   n,,n=NAME,r=NONCE                                      client-first
    server   r=NONCE AND MORE,s=SALT,i=ITERATIONS                   server-first
    client   c=biws,r=NONCE AND MORE,p=PROOF                        client-final
    server   v=SIGNATURE                                            server-final

    SaltedPassword = PBKDF2(password, salt, iterations)             is sent when the password is set, and forgotten
    StoredKey = H(HMAC(SaltedPassword, "Client Key"))               stored: the proof is checked against it
    ServerKey = HMAC(SaltedPassword, "Server Key")                  stored: the signature is made with it

With tokenauth=true among the client's extensions the name is the id of a delegation token, and the password its hmac.
What must hold: whoever has no password is asked for a proof like everybody, and refused like a wrong one; the nonce of
the proof is the whole one and no other; channel binding says what the client has said first.
Kafka: refuses an unknown name at once, and so tells which names there are.
Not here: where credentials are kept (metadata/image.py), setting them (controller/scram.py).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64encode
from binascii import Error as NotBase64
from binascii import a2b_base64
from collections.abc import Callable
from typing import Final, NamedTuple

from minibroker.security.sasl import Exchange, Refusal, utf8

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random

# Mechanism -> its number in records and requests, and its hash.
MECHANISMS: Final = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
DIGESTS: Final = dict(MECHANISMS.values())
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
SALT_BITS: Final = 130
TOKEN_AUTH: Final = "tokenauth"
PRINTABLE: Final = re.compile(r"[!-+\--~]+")  # a comma is not among them
EXTENSIONS: Final = re.compile(r"(?:,[A-Za-z]+=[^,]+)*")
DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class Credential(NamedTuple):
    """What is stored of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "Credential()"


class Bearer(NamedTuple):
    """Whom a delegation token stands for."""

    owner: str
    expires_ms: int
    credential: Credential


class ScramSource(NamedTuple):
    """Where one mechanism finds who may come in."""

    digest: str
    find: Callable[[str], Credential | None]
    find_bearer: Callable[[str], Bearer | None]  # by the id of a delegation token
    decoy: Callable[[str], Credential]  # of a name that nobody has: one and the same at a broker until it stops
    nonce: Callable[[], str]
    takes_more: bool  # before the nonce of the proof, as Kafka did before 4.0 for the sake of librdkafka before 2.6.1


def new_salt(chance: Random) -> bytes:
    """Return a salt as Kafka's tools make it."""
    return as_text(chance.getrandbits(SALT_BITS))


def as_text(number: int) -> bytes:
    """Return a number by letters and digits."""
    found = ""
    while number or not found:
        number, digit = divmod(number, len(DIGITS))
        found = DIGITS[digit] + found
    return found.encode()


def salted_password(digest: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(digest, password.encode("utf-8", "surrogateescape"), salt, iterations)


def credential_of(digest: str, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """Return what is stored of a salted password."""
    stored_key = hashlib.new(digest, _hmac(digest, salted, b"Client Key")).digest()
    return Credential(salt, stored_key, _hmac(digest, salted, b"Server Key"), iterations)


def decoy_of(digest: str, secret: bytes, name: str, iterations: int) -> Credential:
    """Return what a name has that is nobody's: it looks like a credential, and no proof fits."""
    salt = int.from_bytes(_hmac("sha256", secret, f"salt {name}".encode())) >> (256 - SALT_BITS)
    stored_key, server_key = (_hmac(digest, secret, f"{what} {name}".encode()) for what in ("stored", "server"))
    return Credential(as_text(salt), stored_key, server_key, iterations)


class ScramExchange(Exchange):
    """One login by SCRAM."""

    def __init__(self, source: ScramSource):
        self._source = source
        self._is_known = False
        self._credential: Credential | None = None
        self._header = ""  # that the client began with, up to its second comma
        self._bare = ""  # the client's first message without that
        self._first = ""  # the server's
        self._nonce = ""

    def respond(self, token: bytes) -> bytes:
        credential, self._credential = self._credential, None
        return self._begin(utf8(token)) if credential is None else self._finish(utf8(token), credential)

    def _begin(self, text: str) -> bytes:
        if self._first:
            raise Refusal("it goes on after the end")
        source = self._source
        message = ClientFirst(text)
        self._header, self._bare, self.name = message.header, message.bare, message.name
        self.is_token = message.extension(TOKEN_AUTH).lower() == "true"
        if self.is_token:
            bearer = source.find_bearer(message.name)
            credential = None if bearer is None else bearer.credential
            if bearer is not None:
                self.name, self.expires_ms = bearer.owner, bearer.expires_ms
        else:
            credential = source.find(message.name)
        if message.authorization_id not in ("", message.name):
            told = "Authentication failed: Client requested an authorization id that is different from username"
            raise Refusal("it wants to act as somebody else", told, message.name)
        self._is_known = credential is not None and credential.iterations >= ITERATIONS_MIN
        if credential is None or not self._is_known:
            credential = source.decoy(message.name)
        self._credential = credential
        self._nonce = message.nonce + source.nonce()
        salt = b64encode(credential.salt).decode()
        self._first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._first.encode()

    def _finish(self, text: str, credential: Credential) -> bytes:
        digest = self._source.digest
        channel, nonce, proof, without_proof = parse_client_final(text)
        if channel != self._header.encode():
            raise Refusal("its channel binding is not what it began with", name=self.name)
        if nonce != self._nonce and not (self._source.takes_more and nonce.endswith(self._nonce)):
            is_old = nonce.endswith(self._nonce)
            hint = (
                ", but ends so, as librdkafka before 2.6.1 has it, which Kafka has refused since 4.0" if is_old else ""
            )
            raise Refusal(f"its nonce is not the one it was given{hint}", name=self.name)
        signed = f"{self._bare},{self._first},{without_proof}".encode()
        mask = _hmac(digest, credential.stored_key, signed)
        if len(proof) != len(mask):
            raise Refusal("its proof has another length than the hash", name=self.name)
        client_key = bytes(one ^ other for one, other in zip(proof, mask, strict=True))
        is_right = hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key)
        if not is_right or not self._is_known:
            raise Refusal("name or password are wrong", name=self.name)
        self.is_complete = True
        return b"v=" + b64encode(_hmac(digest, credential.server_key, signed))


class ClientFirst:
    """A client's first message: n,[a=AUTHORIZATION ID],n=NAME,r=NONCE and what else it wants."""

    def __init__(self, text: str):
        flag, _, rest = text.partition(",")
        authorization_id, comma, self.bare = rest.partition(",")
        name, _, rest = self.bare.partition(",")
        nonce, comma_behind, rest = rest.partition(",")
        self.header = f"{flag},{authorization_id}{comma}"
        is_message = flag == "n" and comma and name.startswith("n=") and nonce.startswith("r=")
        if not is_message or authorization_id[:2] not in ("", "a=") or authorization_id == "a=":
            raise Refusal("its first message is not of SCRAM")  # channel binding and m= among what is not
        self.name = unescaped(name[2:])
        self.authorization_id = unescaped(authorization_id[2:]) if authorization_id else ""
        self.nonce = nonce[2:]
        if not PRINTABLE.fullmatch(self.nonce):
            raise Refusal("its nonce is empty, or not printable", name=self.name)
        self.extensions = comma_behind + rest
        if not EXTENSIONS.fullmatch(self.extensions):
            raise Refusal("its extensions are not NAME=VALUE", name=self.name)

    def extension(self, name: str) -> str:
        """Return what an extension says, the last of its name; empty: there is none."""
        return self.extensions.rpartition(f",{name}=")[2].partition(",")[0] if f",{name}=" in self.extensions else ""


def parse_client_final(text: str) -> tuple[bytes, str, bytes, str]:
    """Return channel binding, nonce and proof of a client's last message, and the message without the proof."""
    without_proof, comma, proof = text.rpartition(",p=")
    channel, _, rest = without_proof.partition(",")
    nonce, comma_behind, rest = rest.partition(",")
    is_message = comma and channel.startswith("c=") and nonce.startswith("r=") and PRINTABLE.fullmatch(nonce[2:])
    if not is_message or not EXTENSIONS.fullmatch(comma_behind + rest):
        raise Refusal("its last message is not of SCRAM")
    return from_base64(channel[2:]), nonce[2:], from_base64(proof), without_proof


def unescaped(text: str) -> str:
    """Return a name of which commas and = were written as =2C and =3D."""
    plain = text.replace("=2C", ",").replace("=3D", "\0")
    if not text or "=" in plain or not text.isascii() or "\0" in text:
        raise Refusal("a name in it is empty, or not written as SCRAM wants it")
    return plain.replace("\0", "=")


def from_base64(text: str) -> bytes:
    try:
        return a2b_base64(text.encode(), strict_mode=True)
    except NotBase64:
        raise Refusal("what is to be base64 in it is not") from None


def _hmac(digest: str, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, digest)

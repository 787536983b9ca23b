"""Delegation tokens: short-lived names with passwords that stand for a user (KIP-48).

    hmac = HMAC-SHA512(delegation.token.secret.key, token id)      its base64 is the password, by SCRAM with tokenauth

What must hold: secrets are computed from the key that all brokers have, and never stored.
Not here: making, renewing and ending them (controller/delegation_tokens.py).
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from minibroker.security.principal import parse_principal
from minibroker.security.scram import ITERATIONS_MIN, SALT_BITS, Bearer, Credential, as_text, credential_of
from minibroker.security.scram import salted_password as salt_password
from minibroker.stored.security import DelegationTokenRecord

IDS_KEPT: Final = 1000  # of tokens that are gone
CREDENTIALS_MAX: Final = 1000  # so many are remembered: each takes thousands of rounds of hashing


class TokenSecrets:
    """The secrets of the tokens of a cluster."""

    def __init__(self, key: str, tokens: Callable[[], dict[str, DelegationTokenRecord]]):
        self._key = key.encode("utf-8", "surrogateescape")
        self._tokens = tokens
        self._credentials: dict[tuple[str, str], Credential] = {}
        self._ids: dict[bytes, str] = {}  # of tokens, by the digest of their secret
        self._digested: set[str] = set()  # ids that are in it; none is ever given to another token
        self._looked_at: tuple[dict[str, DelegationTokenRecord] | None, str] = None, ""  # and who was last there

    def hmac_of(self, token_id: str) -> bytes:
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def find(self, secret: bytes) -> DelegationTokenRecord | None:
        """Return the token that has a secret; how long that takes tells nothing of the others.

        A digest is looked up, of which a guess of the secret tells nothing.
        """
        tokens = self._tokens()
        last = next(reversed(tokens), "")  # new ones come behind all others
        if tokens is not self._looked_at[0] or last != self._looked_at[1]:
            self._digest_new(tokens, is_known=tokens is self._looked_at[0])
            self._looked_at = tokens, last
        return tokens.get(self._ids.get(sha256(secret).digest(), ""))

    def _digest_new(self, tokens: dict[str, DelegationTokenRecord], *, is_known: bool) -> None:
        """Digest what is new; is_known: all that stand before one that is known are so, too."""
        if len(self._digested) > 2 * len(tokens) + IDS_KEPT:
            self._digested.clear()
            self._ids.clear()
        for token_id in reversed(tokens):
            if token_id not in self._digested:
                self._ids[sha256(self.hmac_of(token_id)).digest()] = token_id
                self._digested.add(token_id)
            elif is_known:
                break

    def find_bearer(self, digest: str, token_id: str, now_ms: int) -> Bearer | None:
        """Return whom a token stands for.

        Kafka: lets in who comes with a token that has expired and is not yet removed, and closes the connection at the
        first request.
        """
        token = self._tokens().get(token_id)
        if token is None or has_expired(token, now_ms):
            return None
        owner = parse_principal(token.owner).name
        return Bearer(owner, token.expiration_timestamp, self._credential(digest, token_id))

    def _credential(self, digest: str, token_id: str) -> Credential:
        credential = self._credentials.get((digest, token_id))
        if credential is None:
            if len(self._credentials) >= CREDENTIALS_MAX:
                self._credentials.clear()
            password = b64encode(self.hmac_of(token_id)).decode()
            noise = hmac.digest(self._key, f"salt {token_id}".encode(), "sha256")
            salt = as_text(int.from_bytes(noise) >> (256 - SALT_BITS))
            salted = salt_password(digest, password, salt, ITERATIONS_MIN)
            credential = self._credentials[digest, token_id] = credential_of(digest, salted, salt, ITERATIONS_MIN)
        return credential


def has_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms

"""PLAIN: name and password in one token (RFC 4616), checked against passwords of the settings, or what is stored.

[authorization id] NUL name NUL password
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping

from minibroker.security.sasl import Exchange, Refusal, utf8


class PlainExchange(Exchange):
    """One login by PLAIN."""

    def __init__(self, passwords: Mapping[str, str], fits_stored: Callable[[str, str], bool] | None = None):
        """passwords: of the settings. fits_stored: whether a password is that of a user with one for SCRAM."""
        self._passwords = passwords
        self._fits_stored = fits_stored

    def respond(self, token: bytes) -> bytes:
        parts = utf8(token).split("\0", 3)
        if len(parts) != 3:
            told = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            raise Refusal("its token is not of PLAIN", told)
        authorization_id, name, password = parts
        if not name:
            raise Refusal("it gives no name", "Authentication failed: username not specified")
        if not password:
            raise Refusal("it gives no password", "Authentication failed: password not specified", name)
        if not self._is_right(name, password):
            raise Refusal("name or password are wrong", "Authentication failed: Invalid username or password", name)
        if authorization_id not in ("", name):
            told = "Authentication failed: Client requested an authorization id that is different from username"
            raise Refusal("it wants to act as somebody else", told, name)
        self.name, self.is_complete = name, True
        return b""

    def _is_right(self, name: str, password: str) -> bool:
        """Compare in a time that tells neither whether there is such a name, nor how long its password is.

        That holds among names of the settings, and among all others where passwords are stored; not between the two.
        """
        expected = self._passwords.get(name)
        if expected is None and self._fits_stored is not None:
            return self._fits_stored(name, password)
        given, wanted = map(_digest, (password, expected or ""))
        return hmac.compare_digest(given, wanted) and expected is not None


def _digest(text: str) -> bytes:
    # A password from the environment may hold bytes that are no text.
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()

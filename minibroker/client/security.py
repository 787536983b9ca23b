"""TLS and SASL, in the words of Kafka's own clients: `security.protocol`, `ssl.…`, `sasl.…`.

    Security.of({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", ...}) -> Security | None

Certificates and keys are files in PEM; what keytool makes (JKS, PKCS12) is refused with the command that converts it.
Mechanisms: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802), over SaslAuthenticate (Kafka 1.0 and later).
What must hold: nothing is sent before the broker has proved its name, unless that was switched off; a password goes
into no message. With SCRAM the broker proves that it knows the password too, or the connection ends.
Kafka: the default mechanism is GSSAPI, which is not here: one must be named.
Not here: OAUTHBEARER, Kerberos, logging in anew before a session ends (the connection is made anew).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import ssl
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from secrets import token_urlsafe
from typing import Any, Protocol

from minibroker.errors import Error, KafkaError
from minibroker.protocol.headers import Request

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN = "PLAIN"
SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MAX = 1 << 20  # a broker that wants more would keep us busy
_TOKEN_AUTH = re.compile(r'\btokenauth\s*=\s*"?true\b', re.IGNORECASE)
_IN_JAAS = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_TRUST_HINT = "keytool -list -rfc -keystore FILE > truststore.pem"
_KEY_HINT = (
    "keytool -importkeystore -srckeystore FILE -destkeystore keystore.p12 -deststoretype PKCS12, "
    "then openssl pkcs12 -in keystore.p12 -nodes -out keystore.pem"
)


class SecurityError(ValueError):
    """Settings make no sense together, or name what is not here; the text says what to do."""


class Caller(Protocol):
    """The connection on which somebody logs in."""

    address: str

    def version_of(self, request: Request) -> int: ...

    async def call(self, request: Request, *, timeout_ms: int) -> Any: ...


class Security:
    """How connections are made safe."""

    def __init__(self, settings: Mapping[str, str]):
        self.protocol = settings.get("security.protocol", PROTOCOLS[0]).upper()
        if self.protocol not in PROTOCOLS:
            raise SecurityError(f"security.protocol is {self.protocol!r}: it can be {', '.join(PROTOCOLS)}")
        self.context = _context(settings) if self.protocol.endswith("SSL") else None
        self.mechanism = self._username = self._password = ""
        self._is_token = False
        if self.protocol.startswith("SASL"):
            self.mechanism = settings.get("sasl.mechanism", "").upper()
            if self.mechanism != PLAIN and self.mechanism not in SCRAM:
                raise SecurityError(
                    f"sasl.mechanism is {self.mechanism or 'not set'}: it can be {', '.join((PLAIN, *SCRAM))}"
                )
            jaas = settings.get("sasl.jaas.config", "")
            self._username, self._password = _credentials(jaas)
            self._is_token = _TOKEN_AUTH.search(jaas) is not None
            if self._is_token and self.mechanism == PLAIN:
                raise SecurityError("tokenauth: a delegation token comes in by SCRAM, and not by PLAIN")

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Security | None:
        """Return what the settings want, None for plain connections."""
        found = cls(settings)
        return None if found.protocol == PROTOCOLS[0] else found

    def check_failure(self, failure: OSError, address: str) -> None:
        """Raise KafkaError if a connection failed for a reason that will not pass."""
        if isinstance(failure, ssl.SSLError):
            why = getattr(failure, "verify_message", "") or failure.reason or str(failure)
            hint = "; ssl.ca.location names the CA that is trusted" if "certificate" in why else ""
            raise KafkaError(Error.SASL_AUTHENTICATION_FAILED, f"{address}: no TLS, {why}{hint}") from failure

    async def authenticate(self, connection: Caller, timeout_ms: int) -> None:
        """Log in; raise KafkaError if the broker does not let us, or does not know the password itself."""
        if not self.mechanism:
            return
        await self._agree(connection, timeout_ms)
        if self.mechanism == PLAIN:
            await _token(connection, f"\0{self._username}\0{self._password}".encode(), timeout_ms)
            return
        scram = Scram(SCRAM[self.mechanism], self._username, self._password, token_urlsafe(18), is_token=self._is_token)
        final = scram.final(await _token(connection, scram.first(), timeout_ms))
        scram.check(await _token(connection, final, timeout_ms))

    async def _agree(self, connection: Caller, timeout_ms: int) -> None:
        from minibroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

        request = SaslHandshakeRequest(mechanism=self.mechanism)
        if connection.version_of(request) < 1:
            raise _refused(connection, "the broker is older than 1.0, which logs in by other rules")
        answer: SaslHandshakeResponse = await connection.call(request, timeout_ms=timeout_ms)
        if answer.error_code:
            offered = ", ".join(answer.mechanisms) or "none"
            raise _refused(connection, f"{self.mechanism} is not offered there, but {offered}")


class Scram:
    """One login by SCRAM, as messages; without any input or output."""

    def __init__(self, digest: str, username: str, password: str, nonce: str, *, is_token: bool = False):
        """is_token: the name is the id of a delegation token, and the password its hmac."""
        self._digest, self._password, self._nonce = digest, password, nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={nonce}{',tokenauth=true' if is_token else ''}"
        self._signature = b""  # with which the broker proves that it knows the password

    def first(self) -> bytes:
        return f"n,,{self._first}".encode()

    def final(self, challenge: bytes) -> bytes:
        """Answer the broker's challenge."""
        text = challenge.decode("utf-8", "replace")
        fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        nonce, salt, iterations = fields.get("r", ""), fields.get("s", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce or not iterations.isdigit():
            raise KafkaError(Error.SASL_AUTHENTICATION_FAILED, f"the broker's challenge breaks SCRAM: {text[:80]!r}")
        if not 0 < int(iterations) <= ITERATIONS_MAX:
            raise KafkaError(Error.SASL_AUTHENTICATION_FAILED, f"the broker wants {iterations} iterations")
        salted = hashlib.pbkdf2_hmac(self._digest, self._password.encode(), b64decode(salt), int(iterations))
        key = self._hmac(salted, b"Client Key")
        final = f"c=biws,r={nonce}"
        signed = f"{self._first},{text},{final}".encode()
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        mask = self._hmac(hashlib.new(self._digest, key).digest(), signed)
        proof = bytes(one ^ other for one, other in zip(key, mask, strict=True))
        return f"{final},p={b64encode(proof).decode()}".encode()

    def check(self, verdict: bytes) -> None:
        text = verdict.decode("utf-8", "replace")
        if text.startswith("e="):
            raise KafkaError(Error.SASL_AUTHENTICATION_FAILED, text[2:])
        if not hmac.compare_digest(text.split(",")[0], f"v={b64encode(self._signature).decode()}"):
            raise KafkaError(Error.SASL_AUTHENTICATION_FAILED, "the broker does not know the password itself")

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.new(key, data, self._digest).digest()


def new_salt() -> bytes:
    """Return what makes a hash of a password different from that of the same one elsewhere."""
    return token_urlsafe(18).encode()


async def _token(connection: Caller, token: bytes, timeout_ms: int) -> bytes:
    from minibroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

    answer: SaslAuthenticateResponse = await connection.call(
        SaslAuthenticateRequest(auth_bytes=token), timeout_ms=timeout_ms
    )
    if answer.error_code:
        raise _refused(connection, answer.error_message or "the broker does not say why")
    return bytes(answer.auth_bytes)


def _refused(connection: Caller, why: str) -> KafkaError:
    return KafkaError(Error.SASL_AUTHENTICATION_FAILED, f"{connection.address}: {why}")


def _credentials(jaas: str) -> tuple[str, str]:
    found = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _IN_JAAS.findall(jaas)}
    if len(found) < 2:
        raise SecurityError(
            "sasl.jaas.config must hold username and password: org.apache.kafka.common.security.plain.PlainLoginModule "
            'required username="..." password="...";'
        )
    return found["username"], found["password"]


# TLS


def _context(settings: Mapping[str, str]) -> ssl.SSLContext:
    certificates, location = settings.get("ssl.truststore.certificates"), settings.get("ssl.truststore.location")
    # Without a truststore those count whom the machine trusts; else only who is in it.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if certificates or location else ssl.create_default_context()
    if certificates:
        _load("ssl.truststore.certificates", "", "", lambda: context.load_verify_locations(cadata=certificates))
    elif location:
        _check_type(settings, "ssl.truststore.type", location, _TRUST_HINT)
        _load("ssl.truststore.location", location, _TRUST_HINT, lambda: context.load_verify_locations(location))
    if settings.get("ssl.endpoint.identification.algorithm", "https").strip() in ("", "none"):
        context.check_hostname = False
    keystore = settings.get("ssl.keystore.location")
    if settings.get("ssl.keystore.key") or settings.get("ssl.keystore.certificate.chain"):
        raise SecurityError(
            "ssl.keystore.key cannot be set here: write key and certificates into one file of PEM, and set "
            "ssl.keystore.location"
        )
    if keystore:
        _check_type(settings, "ssl.keystore.type", keystore, _KEY_HINT)
        password = settings.get("ssl.key.password") or settings.get("ssl.keystore.password") or ""
        # An empty answer rather than a question on the terminal where the key wants a password.
        load = lambda: context.load_cert_chain(keystore, password=lambda: password)  # noqa: E731
        _load("ssl.keystore.location", keystore, _KEY_HINT, load)
    return context


def _check_type(settings: Mapping[str, str], name: str, location: str, hint: str) -> None:
    kind = settings.get(name, "").upper()
    if kind not in ("", "PEM") or location.lower().endswith((".jks", ".p12", ".pfx")):
        raise SecurityError(
            f"{name}: {location} is of type {kind or 'JKS or PKCS12'}, which Java reads and we do not; make it PEM: "
            f"{hint.replace('FILE', location)}, and set {name} to PEM"
        )


def _load(name: str, location: str, hint: str, load: Callable[[], object]) -> None:
    try:
        load()
    except ssl.SSLError as error:
        raise SecurityError(
            f"{name}: {location} is no PEM, or its key needs another password ({error.reason or error}); what keytool "
            f"has made is converted by: {hint.replace('FILE', location)}"
        ) from None
    except OSError as error:
        raise SecurityError(f"{name}: {location} cannot be read: {error.strerror}") from None

"""Throwaway certificates: a CA of one's own, and what broker and clients need of it, for tests and trying out.

    tls-ca.pem        the CA's certificate: the truststore of clients, and of the broker
    tls-ca.key        its private key
    tls-server.pem    key and certificates of the broker, for the names and addresses under which it is found
    tls-client.pem    key and certificates of a client: CN=client
    tls-client.p12    the same as PKCS12, for Java: before Kafka 3 it took no key in PEM without a password

Files of PEM, which Java takes as stores of type PEM. Those of a directory are made once, and anew where one is missing,
expires soon, or has not the names that are asked for; the CA stays as long as it can, so that clients that trust it
need not know. Private keys are their owner's alone to read.
They lie among the data and in no folder: Kafka takes every folder there for a partition, and would not start.
Not here: certificates that anybody else should trust.
"""

from __future__ import annotations

import ipaddress
import os
import platform
import shutil
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from minibroker.config.listeners import EVERY_ADDRESS
from minibroker.config.values import ConfigError
from minibroker.security.x509 import alternative_names_of

CA_DAYS, DAYS = 3650, 365
RENEWED_DAYS = 30  # before they expire
CA, CA_KEY, SERVER, CLIENT = "tls-ca.pem", "tls-ca.key", "tls-server.pem", "tls-client.pem"
CLIENT_STORE = "tls-client.p12"
STORE_PASSWORD = "minibroker"  # Java wants one; it protects nothing that is not in tls-client.pem
ALWAYS = ("localhost", "127.0.0.1", "::1")
ORGANIZATION = "minibroker"


class TlsFiles(NamedTuple):
    """Where the certificates are."""

    ca: str
    server: str
    client: str
    client_store: str

    def settings(self) -> dict[str, str]:
        """Return the settings of a broker that uses them."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.server,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
        }


class ThrowawayCa:
    """The certificates of a directory, or of a folder of their own that is there between `make` and `remove`."""

    def __init__(self, directory: str | None):
        self._is_temporary = directory is None
        self.directory = tempfile.mkdtemp(prefix="minibroker-tls-") if directory is None else os.path.abspath(directory)
        if directory is None:
            os.rmdir(self.directory)  # only its name is taken, until it is needed
        self._kept: dict[str, bytes] = {}  # what was in a folder that is removed
        self.files = TlsFiles(*(os.path.join(self.directory, name) for name in (CA, SERVER, CLIENT, CLIENT_STORE)))

    def make(self, hosts: Iterable[str], now_ms: int) -> None:
        """See that all files are there, and good for these hosts; ConfigError where they cannot be made."""
        try:
            from cryptography import x509  # noqa: F401
        except ModuleNotFoundError:
            words = "certificates are made by the package cryptography, which is not there: pip install"
            raise ConfigError("tls", "", "", f"{words} 'minibroker[tls]'") from None
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        for name, data in self._kept.items():
            self._write(name, data)
        names = {platform.node() if host in EVERY_ADDRESS else host for host in hosts}
        self._make(sorted({*ALWAYS, *filter(None, names)}), datetime.fromtimestamp(now_ms / 1000, UTC))

    def remove(self) -> None:
        """Take a folder of its own away; the next `make` puts the same certificates there."""
        if self._is_temporary and os.path.isdir(self.directory):
            for name in (CA, CA_KEY, SERVER, CLIENT, CLIENT_STORE):
                if (data := self._read(name)) is not None:
                    self._kept[name] = data
            shutil.rmtree(self.directory)

    def _make(self, hosts: list[str], now: datetime) -> None:
        ca = _parsed(self._read(CA), self._read(CA_KEY), now)
        if ca is None:
            ca = _issued("throwaway CA", now, CA_DAYS)
            self._write(CA_KEY, _key_pem(ca.key))
            self._write(CA, _pem(ca))
        self._make_one(SERVER, "localhost", hosts, ca, now)
        client = self._make_one(CLIENT, "client", [], ca, now)
        if client is not None or self._read(CLIENT_STORE) is None:
            data = self._read(CLIENT)
            found = client or _parsed(data, data, now)
            assert found is not None
            self._write(CLIENT_STORE, _store(found, ca))

    def _make_one(self, name: str, common_name: str, names: list[str], ca: _Issued, now: datetime) -> _Issued | None:
        """Return a new certificate, which has been written; None if the one that is there is good."""
        data = self._read(name)
        there = _parsed(data, data, now)
        if there is not None and there.is_from(ca) and _names(names) <= alternative_names_of(there.der):
            return None
        made = _issued(common_name, now, DAYS, issuer=ca, names=names)
        self._write(name, _key_pem(made.key) + _pem(made) + _pem(ca))
        return made

    def _read(self, name: str) -> bytes | None:
        try:
            with open(os.path.join(self.directory, name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def _write(self, name: str, data: bytes) -> None:
        """Put a file in its place at once, with all that is to be in it."""
        path = os.path.join(self.directory, name)
        mode = 0o644 if name == CA else 0o600
        handle = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(f"{path}.new", path)


class _Issued(NamedTuple):
    """A certificate, and the key that it is for."""

    key: Any
    certificate: Any

    @property
    def der(self) -> bytes:
        from cryptography.hazmat.primitives.serialization import Encoding

        der: bytes = self.certificate.public_bytes(Encoding.DER)
        return der

    def is_from(self, issuer: _Issued) -> bool:
        """Whether an issuer has signed it."""
        from cryptography.exceptions import InvalidSignature

        try:
            self.certificate.verify_directly_issued_by(issuer.certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True


def _parsed(certificate: bytes | None, key: bytes | None, now: datetime) -> _Issued | None:
    """Return what two files hold; None if anything is missing, broken or about to expire."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        found = _Issued(load_pem_private_key(key or b"", None), x509.load_pem_x509_certificate(certificate or b""))
    except ValueError:
        return None
    if found.certificate.not_valid_after_utc - now < timedelta(days=RENEWED_DAYS):
        return None
    return found if found.key.public_key() == found.certificate.public_key() else None


def _issued(
    common_name: str, now: datetime, days: int, *, issuer: _Issued | None = None, names: Iterable[str] = ()
) -> _Issued:
    """Return a new key with its certificate, signed by an issuer or by itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    if issuer is None:  # or one would be taken for another
        common_name += f" {identifier.digest.hex()[:8]}"
    attributes = {NameOID.ORGANIZATION_NAME: ORGANIZATION, NameOID.COMMON_NAME: common_name}
    subject = x509.Name([x509.NameAttribute(kind, text) for kind, text in attributes.items()])
    signing = issuer.key if issuer is not None else key
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks of clients may be a little behind
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
        .add_extension(_usage(is_ca=issuer is None), critical=True)
    )
    if issuer is not None:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH] if names else [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(_general_names(names)), critical=False)
    return _Issued(key, builder.sign(signing, hashes.SHA256()))


def _usage(*, is_ca: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )


def _general_names(names: Iterable[str]) -> list[Any]:
    from cryptography import x509

    found: list[Any] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name.encode("idna").decode("ascii")))
    return found


def _names(names: Iterable[str]) -> frozenset[bytes]:
    """Return names as a certificate has them."""
    found = set()
    for name in names:
        try:
            data, tag = ipaddress.ip_address(name).packed, 0x87
        except ValueError:
            data, tag = name.encode("idna"), 0x82
        found.add(bytes((tag, len(data))) + data)
    return frozenset(found)


def _pem(issued: _Issued) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    pem: bytes = issued.certificate.public_bytes(Encoding.PEM)
    return pem


def _key_pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


def _store(issued: _Issued, ca: _Issued) -> bytes:
    """Return a key with its certificates as PKCS12."""
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

    store: bytes = serialize_key_and_certificates(
        b"client", issued.key, issued.certificate, [ca.certificate], BestAvailableEncryption(STORE_PASSWORD.encode())
    )
    return store

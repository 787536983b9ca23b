"""Certificates for tests: those of a throwaway CA, and some that are wrong in one way each."""

from __future__ import annotations

import atexit
import shutil
import ssl
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from minibroker.clock import LoopClock
from minibroker.security.throwaway_ca import CA, CA_KEY, ThrowawayCa, TlsFiles, _issued, _key_pem, _parsed, _pem, _store
from minibroker.security.x509 import subject_of

PASSWORD = "geheim-7"


def made(name: str = "") -> TlsFiles:
    """Return the certificates of a CA; of another one for another name."""
    return _made(name)


@cache
def _made(name: str) -> TlsFiles:
    folder = mkdtemp(prefix=f"minibroker-tests-{name}")
    atexit.register(shutil.rmtree, folder)
    ca = ThrowawayCa(folder)
    ca.make((), LoopClock().now_ms())
    return ca.files


def issued(name: str, *, of: str = "", year: int = 0, names: tuple[str, ...] = ()) -> Path:
    """Return the path of a file with key and certificate for somebody, issued in some year by the CA of a name.

    Beside it is the same as PKCS12, as Java wants it.
    """
    folder = Path(made(of).ca).parent
    now = datetime.now(UTC)
    issuer = _parsed((folder / CA).read_bytes(), (folder / CA_KEY).read_bytes(), now)
    assert issuer is not None
    found = _issued(name, datetime(year, 1, 1, tzinfo=UTC) if year else now, 365, issuer=issuer, names=names)
    path = folder / f"{name}-{year}-{len(names)}.pem"
    path.write_bytes(_key_pem(found.key) + _pem(found) + _pem(issuer))
    path.with_suffix(".p12").write_bytes(_store(found, issuer))
    return path


def subject(path: str | Path) -> str:
    return subject_of(x509.load_pem_x509_certificate(Path(path).read_bytes()).public_bytes(Encoding.DER))


def client_context(of: str = "", certificate: str | Path | None = None, *, version: str = "") -> ssl.SSLContext:
    """Return what a client has that trusts the CA of a name, and shows a certificate perhaps."""
    context = ssl.create_default_context(cafile=made(of).ca)
    if certificate is not None:
        context.load_cert_chain(certificate)
    if version:
        context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    return context


def key_and_chain() -> tuple[str, str]:
    text = Path(made().server).read_text()
    key, begin, chain = text.partition("-----BEGIN CERTIFICATE")
    return key, begin + chain


def with_password(pem: str) -> str:
    """Return a private key that wants a password."""
    key = load_pem_private_key(pem.encode(), None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode()))
    return encrypted.decode()


def store(path: Path, *, key: bool = True) -> Path:
    """Write what is in PEM as PKCS12."""
    pem = Path(made().server).read_bytes()
    own, *others = x509.load_pem_x509_certificates(pem)
    encryption = BestAvailableEncryption(PASSWORD.encode())
    private = load_pem_private_key(pem, None)
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"broker",
            private if key else None,
            own if key else None,
            others,
            encryption,  # type: ignore[arg-type]
        )
    )
    return path

"""Names in certificates: as Java prints them, and what else is read of a certificate."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from minibroker.security.x509 import alternative_names_of, name_of, subject_of
from tests.goldens import principal_names

NAMES = [line for line in principal_names() if "name" in line]


def certificate(*names: x509.GeneralName, common_name: str = "alice") -> bytes:
    """Return a certificate, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    now = datetime(2030, 1, 1)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).serial_number(7)
    builder = builder.public_key(key.public_key()).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize("line", NAMES, ids=lambda line: str(line["text"])[:30])
def test_a_name_is_printed_as_java_prints_it(line: dict[str, Any]) -> None:
    assert name_of(bytes.fromhex(line["name"])) == line["text"]


def test_the_subject_of_a_certificate_is_found() -> None:
    assert subject_of(certificate(common_name="Zoë")) == "CN=Zoë"


def test_alternative_names_are_found() -> None:
    assert alternative_names_of(certificate(x509.DNSName("a"), x509.DNSName("bc"))) == {b"\x82\x01a", b"\x82\x02bc"}
    assert alternative_names_of(certificate()) == frozenset()


@pytest.mark.parametrize("data", [b"", b"\x30", b"\x30\x00", b"\x30\x02\x30\x00", b"\x30\x82\xff\xff\x00", b"hello"])
def test_what_is_no_certificate_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        subject_of(data)


def test_a_certificate_that_is_cut_anywhere_is_a_value_error() -> None:
    whole = certificate(x509.DNSName("a"))
    for end in range(len(whole)):
        with pytest.raises(ValueError):
            subject_of(whole[:end])

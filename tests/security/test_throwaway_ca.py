"""Certificates that are made for a start: what they are good for, who may read them, and when they are made anew."""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

from minibroker.security.throwaway_ca import CA, CA_KEY, CLIENT, CLIENT_STORE, SERVER, STORE_PASSWORD, ThrowawayCa
from tests.security.certificates import subject

NAMES = (CA, CA_KEY, SERVER, CLIENT, CLIENT_STORE)
DAY_MS = 86_400_000
NOW_MS = 1_900_000_000_000


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in NAMES}


def changed(before: dict[str, bytes], folder: Path) -> set[str]:
    return {name for name, data in contents(folder).items() if data != before[name]}


def names_of(path: Path) -> list[str]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    return [
        str(each.value) for each in certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    ]


def test_there_are_a_ca_a_broker_and_a_client(tmp_path: Path) -> None:
    ca = ThrowawayCa(str(tmp_path / "data"))
    ca.make(["broker", "10.1.2.3"], NOW_MS)
    assert sorted(os.listdir(tmp_path / "data")) == sorted(NAMES)
    assert names_of(Path(ca.files.server)) == ["10.1.2.3", "127.0.0.1", "::1", "broker", "localhost"]
    assert subject(ca.files.client) == "CN=client,O=minibroker"
    for path in (ca.files.server, ca.files.client):
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
        issuer, own = (x509.load_pem_x509_certificate(Path(each).read_bytes()) for each in (ca.files.ca, path))
        own.verify_directly_issued_by(issuer)


@pytest.mark.skipif(os.name == "nt", reason="files have no such rights")
def test_private_keys_are_their_owners_alone(tmp_path: Path) -> None:
    ThrowawayCa(str(tmp_path)).make((), NOW_MS)
    rights = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in NAMES}
    assert rights == {name: 0o644 if name == CA else 0o600 for name in NAMES}


def test_what_is_there_and_good_stays(tmp_path: Path) -> None:
    ca = ThrowawayCa(str(tmp_path))
    ca.make(["broker"], NOW_MS)
    before = contents(tmp_path)
    ca.make(["broker"], NOW_MS + 300 * DAY_MS)
    ca.make([], NOW_MS)  # it has more names than are asked for
    assert not changed(before, tmp_path)


@pytest.mark.parametrize(
    ("hosts", "days", "lost", "new"),
    [
        (["other"], 0, "", {SERVER}),
        (["broker"], 340, "", {SERVER, CLIENT, CLIENT_STORE}),
        (["broker"], 3630, "", {*NAMES}),
        (["broker"], 0, CLIENT, {CLIENT, CLIENT_STORE}),
        (["broker"], 0, CA_KEY, {*NAMES}),
    ],
)
def test_only_what_is_missing_expires_or_lacks_a_name_is_made_anew(
    hosts: list[str], days: int, lost: str, new: set[str], tmp_path: Path
) -> None:
    ca = ThrowawayCa(str(tmp_path))
    ca.make(["broker"], NOW_MS)
    before = contents(tmp_path)
    if lost:
        (tmp_path / lost).write_text("half of it")
    ca.make(hosts, NOW_MS + days * DAY_MS)
    assert changed(before, tmp_path) == new


def test_a_store_that_is_missing_holds_what_is_there_as_pem(tmp_path: Path) -> None:
    ca = ThrowawayCa(str(tmp_path))
    ca.make((), NOW_MS)
    before = contents(tmp_path)
    (tmp_path / CLIENT_STORE).unlink()
    ca.make((), NOW_MS)
    assert changed(before, tmp_path) == {CLIENT_STORE}
    found = load_pkcs12((tmp_path / CLIENT_STORE).read_bytes(), STORE_PASSWORD.encode())
    assert found.cert is not None
    assert found.cert.certificate == x509.load_pem_x509_certificate(before[CLIENT])


def test_a_folder_of_its_own_goes_and_comes_with_the_same_certificates() -> None:
    ca = ThrowawayCa(None)
    folder = Path(ca.directory)
    assert not folder.exists()
    ca.make((), NOW_MS)
    before = contents(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    ca.remove()
    assert not folder.exists()
    ca.make((), NOW_MS)
    assert not changed(before, folder)
    ca.remove()


def test_a_folder_of_data_is_never_removed(tmp_path: Path) -> None:
    ca = ThrowawayCa(str(tmp_path))
    ca.make((), NOW_MS)
    ca.remove()
    assert contents(tmp_path)


def test_two_cas_are_not_taken_for_one_another(tmp_path: Path) -> None:
    subjects = set()
    for name in ("a", "b"):
        ca = ThrowawayCa(str(tmp_path / name))
        ca.make((), NOW_MS)
        subjects.add(subject(ca.files.ca))
    assert len(subjects) == 2

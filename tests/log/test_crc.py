"""Checksums agree with published vectors and with Kafka's batches, whatever kind of buffer they are asked of."""

from __future__ import annotations

import mmap
import subprocess
import sys
from zlib import crc32

import google_crc32c
import pytest

from minibroker.log.batches import CRC_PIECE_BYTES, crc32c
from tests import goldens

VECTORS = [  # RFC 3720, appendix B.4, and the usual check value
    (b"", 0x00000000),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


@pytest.mark.parametrize(("data", "checksum"), VECTORS)
def test_crc32c_gives_the_published_checksums(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum
    assert crc32c(bytearray(data)) == checksum
    assert crc32c(memoryview(data)) == checksum


@pytest.mark.parametrize(
    "size_bytes", [CRC_PIECE_BYTES - 1, CRC_PIECE_BYTES, CRC_PIECE_BYTES + 1, 3 * CRC_PIECE_BYTES + 7]
)
def test_crc32c_of_a_large_buffer_does_not_depend_on_its_pieces(size_bytes: int) -> None:
    data = (bytes(range(251)) * (size_bytes // 251 + 1))[:size_bytes]
    assert crc32c(memoryview(data)) == crc32c(bytearray(data)) == crc32c(data)


def test_a_mapped_file_can_be_summed_up() -> None:
    with mmap.mmap(-1, 100_000) as mapped:
        mapped[:9] = b"123456789"
        with memoryview(mapped) as view, view[:9] as part, view.toreadonly() as all_of_it:
            assert crc32c(part) == 0xE3069283
            assert crc32c(all_of_it) == crc32c(b"123456789" + bytes(99_991))


def test_crc32c_runs_in_c() -> None:
    assert google_crc32c.implementation == "c"


def test_kafkas_batches_carry_these_checksums() -> None:
    checked = set()
    for case in goldens.records("records"):
        data = memoryview(bytes.fromhex(case["hex"]))
        batch, magic = case["batches"][0] if case["batches"] else {}, data[16]
        if "broken" in case:
            continue
        end = 12 + int.from_bytes(data[8:12], "big")
        checksum = crc32c(data[21:end]) if magic == 2 else crc32(data[16:end])
        assert checksum == int.from_bytes(data[17:21] if magic == 2 else data[12:16], "big"), case["id"]
        if magic == 2:
            assert checksum == batch["crc"], case["id"]
        checked.add(magic)
    assert checked == {0, 1, 2}


@pytest.mark.outside
def test_the_package_is_imported_at_the_first_checksum() -> None:
    code = """
import sys
from minibroker.log.batches import crc32c
assert not any(name.startswith("google_crc32c") for name in sys.modules)
crc32c(b"")
assert "google_crc32c" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)

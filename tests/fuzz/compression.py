"""Fuzz target: every codec in every format, broken streams, and there and back.

    how, level, then the bytes
    how % 8 is the codec, two of which do not exist; how // 8 % 3 the magic; from 128 on the bytes are packed first

What must hold: nothing but two errors comes out of broken streams, each with a position within; output never exceeds
the limit; a limit of exactly the output is enough and one less is not. What we pack we unpack.
"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.errors import DecompressionFailed, DecompressionLimit, UnknownCodec
from minibroker.log.compression import LEVELS, NONE, ZSTD, compress, decompress
from tests import goldens

LIMIT_BYTES = 1024 * 1024
CHOICE_BYTES = 2
PACK_FIRST = 128
EXACT_BYTES_MAX = 4096  # above, trying the limits out would take the time of most inputs


def check(data: bytes) -> None:
    if len(data) < CHOICE_BYTES:
        return
    codec, magic, level = data[0] % 8, data[0] // 8 % 3, data[1]
    if data[0] < PACK_FIRST:
        check_unpacking(codec, magic, data[CHOICE_BYTES:])
    elif codec <= ZSTD and (codec != ZSTD or magic == 2):
        check_packing(codec, magic, level, data[CHOICE_BYTES:])


def check_unpacking(codec: int, magic: int, data: bytes) -> None:
    try:
        unpacked = decompress(codec, data, LIMIT_BYTES, magic=magic)
    except UnknownCodec:
        assert codec > ZSTD or (codec == ZSTD and magic < 2)
        return
    except (DecompressionFailed, DecompressionLimit) as error:
        assert 0 <= error.position <= len(data), error
        return
    assert len(unpacked) <= LIMIT_BYTES
    if not 0 < len(unpacked) <= EXACT_BYTES_MAX:
        return
    assert decompress(codec, memoryview(data), len(unpacked), magic=magic) == unpacked
    try:
        decompress(codec, data, len(unpacked) - 1, magic=magic)
    except DecompressionLimit:
        return
    raise AssertionError(f"{len(unpacked)} bytes within a limit of one less")


def check_packing(codec: int, magic: int, level: int, data: bytes) -> None:
    lowest, highest, _ = LEVELS.get(codec, (0, 0, 0))
    # The highest levels of zstd take a second and most of a gigabyte for anything.
    chosen = max(lowest, min(highest, 9) - level % 16) if level and codec in LEVELS else None
    packed = compress(codec, data, level=chosen, magic=magic)
    assert decompress(codec, packed, len(data), magic=magic) == data
    if codec != NONE and data:
        check_unpacking(codec, magic, packed[:-1])


BROKEN = [  # codec, magic, bytes
    (1, 2, "1f8b"),
    (1, 2, "1f8b08000000000000ff0300000000000000"),
    (1, 2, "1f8b081c000000000003020061620061006200"),
    (2, 2, "ffffffff0f0061"),
    (2, 2, "82534e41505059000000000100000001000000020461"),
    (2, 2, "82534e41505059000000000000000001"),
    (3, 0, "04224d18687000000000000000400000000000"),
    (3, 2, "04224d1860408205000080616263646500000000"),
    (3, 2, "04224d1860408205000080"),
    (4, 2, "28b52ffde00000000080000000010000"),
    (4, 2, "28b52ffd0058190000616263" + "502a4d1803000000616263"),
    (4, 2, "28b52ffd0088" + 8 * "02001000" + "010000"),
    (4, 2, "28b52ffd0090190000616263"),
    (4, 1, "28b52ffd"),
    (5, 2, "00"),
]


def seeds() -> Iterator[bytes]:
    """Yield one payload of each kind that Java clients write, broken streams, and bytes to pack."""
    seen = set()
    for case in sorted(goldens.records("records"), key=lambda case: case["size"]):
        data = bytes.fromhex(case["hex"])
        if "broken" in case or len(data) < 60:
            continue
        magic = data[16]
        codec, start = data[22 if magic == 2 else 17] & 7, (26, 34, 61)[magic]
        end = 12 + int.from_bytes(data[8:12], "big")
        if codec and (codec, magic, len(data) // 64) not in seen and len(data) < 1500:
            seen.add((codec, magic, len(data) // 64))
            yield bytes((codec + 8 * magic, 0)) + data[start:end]
    for codec, magic, text in BROKEN:
        yield bytes((codec + 8 * magic, 0)) + bytes.fromhex(text)
    for codec in range(5):
        for magic, level in ((2, 0), (2, 8), (codec != ZSTD and 1, 0)):
            yield bytes((PACK_FIRST + codec + 8 * magic, level)) + b"bottles of beer, " * (1 + level)

"""Compressing and unpacking in pieces give what doing it at once gives."""

from __future__ import annotations

from random import Random

import pytest

from minibroker.errors import DecompressionFailed, DecompressionLimit
from minibroker.in_pieces import PIECE_US, finish
from minibroker.log.compression import (
    CODEC_NAMES,
    GZIP,
    LEVELS,
    LZ4,
    LZ4_HEADER,
    PIECE_BYTES,
    SNAPPY,
    SNAPPY_HEADER,
    STEP_US,
    ZSTD,
    ZSTD_MAGIC,
    compress,
    compress_in_pieces,
    decompress,
    decompress_in_pieces,
)

CODECS = range(1, len(CODEC_NAMES))
RANDOM = Random(8)
NOISE = RANDOM.randbytes(300_000)
TEXT = b"".join(b'{"id": %d, "name": "somebody"}' % RANDOM.randrange(10**6) for _ in range(12_000))


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: CODEC_NAMES[codec])
@pytest.mark.parametrize("data", [b"", b"short", NOISE[: PIECE_BYTES + 1], NOISE, TEXT, bytes(3_000_000)])
def test_pieces_are_what_the_whole_would_be(codec: int, data: bytes) -> None:
    at_once = compress(codec, data)
    made = finish(compress_in_pieces(codec, data))
    assert bytes(decompress(codec, made, len(data))) == data
    assert made[:9] == at_once[:9]
    assert abs(len(made) - len(at_once)) < 0.01 * len(at_once) + 20
    for packed in (made, at_once):
        assert finish(decompress_in_pieces(codec, memoryview(packed), len(data) + 1)) == data


def test_what_is_large_is_compressed_in_many_pieces() -> None:
    for codec in CODECS:
        assert sum(1 for _ in compress_in_pieces(codec, TEXT)) >= len(TEXT) // (3 * PIECE_BYTES)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: CODEC_NAMES[codec])
@pytest.mark.parametrize("level", [1, 9, 17])
def test_levels_are_those_of_the_whole(codec: int, level: int) -> None:
    if codec not in LEVELS:
        return
    level = min(level, LEVELS[codec][1])
    at_once = compress(codec, TEXT, level=level)
    made = finish(compress_in_pieces(codec, TEXT, level=level))
    assert made[:9] == at_once[:9]
    assert abs(len(made) - len(at_once)) < 0.01 * len(at_once) + 20


def empty_blocks(codec: int, count: int) -> bytes:
    """Return what holds nothing but so many blocks, members or frames without content."""
    empty = compress(codec, b"")
    if codec == SNAPPY:
        return SNAPPY_HEADER + bytes.fromhex("00000001 00") * count
    if codec == LZ4:
        return LZ4_HEADER + bytes.fromhex("00000080") * count + bytes(4)
    if codec == ZSTD:
        return ZSTD_MAGIC + bytes.fromhex("0058") + bytes(3) * count + bytes.fromhex("010000")
    return empty * count


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: CODEC_NAMES[codec])
def test_what_unpacks_to_much_or_takes_many_steps_is_unpacked_in_pieces_of_one_length(codec: int) -> None:
    for packed, size_bytes in ((compress(codec, bytes(20_000_000)), 20_000_000), (empty_blocks(codec, 20_000), 0)):
        work, pieces = decompress_in_pieces(codec, packed, 1 << 30), []
        while True:
            try:
                pieces.append(next(work))
            except StopIteration as end:
                assert len(end.value) == size_bytes
                break
        assert len(pieces) >= 19, "about as long as it has been measured to take"
        assert max(pieces) < 2 * PIECE_US


def test_zstd_frames_that_hold_nothing_are_passed_in_pieces() -> None:
    skipped = bytes.fromhex("502a4d18 00000000")
    pieces = list(decompress_in_pieces(ZSTD, skipped * 20_000, 1 << 20))
    assert len(pieces) == 2 * 20_000 * STEP_US // PIECE_US


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: CODEC_NAMES[codec])
def test_what_is_small_is_unpacked_without_a_pause(codec: int) -> None:
    assert not list(decompress_in_pieces(codec, compress(codec, TEXT[:16_000]), 1 << 20))


def test_gzip_that_is_unusual_or_broken_is_read_or_refused_as_usual() -> None:
    packed = compress(GZIP, NOISE)
    assert finish(decompress_in_pieces(GZIP, memoryview(packed + packed), 1 << 20)) == NOISE + NOISE
    assert finish(decompress_in_pieces(GZIP, memoryview(packed + b"tail"), 1 << 20)) == NOISE
    with pytest.raises(DecompressionLimit):
        finish(decompress_in_pieces(GZIP, memoryview(packed), len(NOISE) - 1))
    for broken in (packed[:-1], packed[:100_000], packed[:50_000] + b"x" * 50 + packed[50_050:], NOISE):
        with pytest.raises(DecompressionFailed):
            finish(decompress_in_pieces(GZIP, memoryview(broken), 1 << 20))

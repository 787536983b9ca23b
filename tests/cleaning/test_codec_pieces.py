"""Compressing and unpacking in pieces give what doing it at once gives."""

from __future__ import annotations

from random import Random

import pytest

from minibroker.cleaning.codec_pieces import PIECE_BYTES, compress_in_pieces, decompress_in_pieces
from minibroker.errors import DecompressionFailed, DecompressionLimit
from minibroker.log.compression import CODEC_NAMES, GZIP, compress, decompress
from tests.cleaning.random_batches import finish

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


def test_what_is_large_is_done_in_many_pieces() -> None:
    for codec in CODECS:
        assert sum(1 for _ in compress_in_pieces(codec, TEXT)) >= len(TEXT) // (3 * PIECE_BYTES)
    packed = memoryview(compress(GZIP, TEXT))
    assert sum(1 for _ in decompress_in_pieces(GZIP, packed, 1 << 20)) >= len(packed) // PIECE_BYTES
    # Little that becomes much is given out in pieces too.
    packed = memoryview(compress(GZIP, NOISE[:PIECE_BYTES] + bytes(10_000_000)))
    assert sum(1 for _ in decompress_in_pieces(GZIP, packed, 1 << 30)) > 100


def test_gzip_that_is_unusual_or_broken_is_read_or_refused_as_usual() -> None:
    packed = compress(GZIP, NOISE)
    assert finish(decompress_in_pieces(GZIP, memoryview(packed + packed), 1 << 20)) == NOISE + NOISE
    assert finish(decompress_in_pieces(GZIP, memoryview(packed + b"tail"), 1 << 20)) == NOISE
    with pytest.raises(DecompressionLimit):
        finish(decompress_in_pieces(GZIP, memoryview(packed), len(NOISE) - 1))
    for broken in (packed[:-1], packed[:100_000], packed[:50_000] + b"x" * 50 + packed[50_050:], NOISE):
        with pytest.raises(DecompressionFailed):
            finish(decompress_in_pieces(GZIP, memoryview(broken), 1 << 20))

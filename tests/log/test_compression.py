"""Codecs read what Kafka wrote, write what Kafka would, and stop at a limit and at nonsense."""

from __future__ import annotations

import random
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minibroker.errors import DecompressionFailed, DecompressionLimit, UnknownCodec
from minibroker.log.compression import (
    CODEC_NAMES,
    GZIP,
    LEVELS,
    LZ4,
    NONE,
    PIECE_BYTES,
    SNAPPY,
    ZSTD,
    check_level,
    compress,
    decompress,
)
from tests import goldens

MIB = 1024 * 1024
COMPRESSED = [GZIP, SNAPPY, LZ4, ZSTD]
FORMATS = [(codec, magic) for magic in (0, 1, 2) for codec in range(5) if codec != ZSTD or magic == 2]
TEXT = b"".join(b"%d bottles of beer on the wall, " % n for n in range(20_000))


def noise(size_bytes: int) -> bytes:
    return random.Random(size_bytes).randbytes(size_bytes)


SAMPLES = [
    pytest.param(b"", id="nothing"),
    pytest.param(b"a", id="one byte"),
    pytest.param(TEXT, id="text"),
    pytest.param(noise(200_000), id="noise"),
    *(pytest.param(bytes(PIECE_BYTES * n + more), id=f"{n} pieces {more:+}") for n in (1, 2) for more in (-1, 0, 1)),
]


# What Kafka wrote


def golden_payloads() -> Iterator[tuple[str, int, int, bytes, int | None]]:
    """Yield id, magic, codec, compressed bytes and the size they unpack to, by the layouts of the three formats."""
    for name in ("records", "validate", "downconvert"):
        for case in goldens.records(name):
            if "broken" in case or "hex" not in case:
                continue
            data, position = bytes.fromhex(case["hex"]), 0
            batches = case["batches"] if name == "records" else []
            sizes = iter([sum(record["size"] for record in batch["records"]) for batch in batches])
            while position < len(data):
                end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
                magic = data[position + 16]
                # In v0 and v1 a wrapper message with null key, whose value is the payload.
                start = position + (26, 34, 61)[magic]
                codec = data[position + (22 if magic == 2 else 17)] & 7
                if codec:
                    yield f"{name}:{case['id']}", magic, codec, data[start:end], next(sizes, None)
                position = end


@pytest.mark.parametrize(("codec", "magic"), [format for format in FORMATS if format[0] != NONE])
def test_every_golden_payload_unpacks_to_its_records(codec: int, magic: int) -> None:
    count = 0
    for name, its_magic, its_codec, payload, size_bytes in golden_payloads():
        if (its_codec, its_magic) == (codec, magic):
            unpacked = decompress(codec, payload, MIB, magic=magic)
            assert size_bytes is None or len(unpacked) == size_bytes, name
            assert decompress(codec, compress(codec, unpacked, magic=magic), MIB, magic=magic) == unpacked, name
            count += 1
    assert count > 10


@pytest.mark.parametrize(("codec", "magic"), [format for format in FORMATS if format[0] != NONE])
def test_headers_are_those_of_kafka_byte_for_byte(codec: int, magic: int) -> None:
    header_bytes = {GZIP: 10, SNAPPY: 16, LZ4: 7, ZSTD: 6}[codec]
    ours = compress(codec, TEXT, magic=magic)[:header_bytes]
    assert {golden[3][:header_bytes] for golden in golden_payloads() if golden[1:3] == (magic, codec)} == {ours}


def test_lz4_has_the_wrong_header_checksum_in_v0_only() -> None:
    assert [compress(LZ4, TEXT, magic=magic)[6] for magic in (0, 1, 2)] == [0x1A, 0x82, 0x82]


# There and back


@pytest.mark.parametrize("data", SAMPLES)
@pytest.mark.parametrize(("codec", "magic"), FORMATS)
def test_what_is_packed_unpacks_to_the_same(codec: int, magic: int, data: bytes) -> None:
    packed = compress(codec, data, magic=magic)
    assert decompress(codec, packed, len(data), magic=magic) == data
    assert decompress(codec, memoryview(packed), len(data), magic=magic) == data
    assert compress(codec, memoryview(bytearray(data)), magic=magic) == packed


@pytest.mark.parametrize("data", SAMPLES)
def test_the_packages_themselves_read_what_we_write(data: bytes) -> None:
    assert zlib.decompress(compress(GZIP, data), wbits=31) == data
    assert lz4.frame.decompress(compress(LZ4, data)) == data
    assert zstandard.ZstdDecompressor().decompressobj().decompress(compress(ZSTD, data)) == data


def test_uncompressed_data_is_not_copied() -> None:
    data = bytearray(b"records")
    view = decompress(NONE, data, 7)
    data[0] = ord("R")
    assert view == b"Records"


def test_unknown_codecs_are_refused_in_both_directions() -> None:
    for codec, magic in [(5, 2), (7, 2), (-1, 2), (ZSTD, 0), (ZSTD, 1)]:
        with pytest.raises(UnknownCodec):
            compress(codec, b"", magic=magic)
        with pytest.raises(UnknownCodec):
            decompress(codec, b"", 100, magic=magic)


# Levels


@pytest.mark.parametrize("level", [-1, 1, 9])
def test_gzip_has_levels_1_to_9_and_minus_1(level: int) -> None:
    assert decompress(GZIP, compress(GZIP, TEXT, level=level), MIB) == TEXT


@pytest.mark.parametrize("level", range(1, 18))
def test_lz4_has_levels_1_to_17(level: int) -> None:
    assert decompress(LZ4, compress(LZ4, TEXT, level=level), MIB) == TEXT


@pytest.mark.parametrize("level", [-131072, -5, 0, 1, 3, 12])  # 22 takes a second and most of a gigabyte
def test_zstd_has_levels_down_to_minus_131072(level: int) -> None:
    assert decompress(ZSTD, compress(ZSTD, TEXT, level=level), MIB) == TEXT


@pytest.mark.parametrize(
    ("codec", "level", "message"),
    [
        (GZIP, 0, r"gzip level 0 is outside 1\.\.9 or -1"),
        (GZIP, 10, r"outside 1\.\.9 or -1"),
        (GZIP, -2, r"outside 1\.\.9 or -1"),
        (LZ4, 0, r"lz4 level 0 is outside 1\.\.17$"),
        (LZ4, 18, r"outside 1\.\.17$"),
        (ZSTD, 23, r"zstd level 23 is outside -131072\.\.22$"),
        (ZSTD, -131073, r"outside -131072\.\.22$"),
        (SNAPPY, 1, "snappy has no compression levels"),
        (NONE, 1, "none has no compression levels"),
    ],
)
def test_a_level_that_kafka_refuses_is_refused_with_the_range(codec: int, level: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compress(codec, b"", level=level)
    with pytest.raises(ValueError, match=message):
        check_level(codec, level)


def test_levels_change_the_size() -> None:
    for codec, low, high in [(GZIP, 1, 9), (LZ4, LEVELS[LZ4][2], 12), (ZSTD, -50, 12)]:
        assert len(compress(codec, TEXT, level=high)) < len(compress(codec, TEXT, level=low))


def test_lz4_level_9_is_the_fast_compressor() -> None:
    assert compress(LZ4, TEXT, level=9) == compress(LZ4, TEXT) == lz4_frame(TEXT, compression_level=0)
    assert len(compress(LZ4, TEXT, level=8)) < len(compress(LZ4, TEXT, level=9))


# Framings that other writers use


def lz4_frame(data: bytes, **options: object) -> bytes:
    settings = {"block_size": lz4.frame.BLOCKSIZE_MAX64KB, "block_linked": False, "store_size": False}
    frame: bytes = lz4.frame.compress(data, **(settings | options))
    return frame


def test_raw_snappy_without_the_java_header_is_read() -> None:
    for data in (b"", b"a", TEXT):
        assert decompress(SNAPPY, snappy.compress(data), len(data)) == data


def test_gzip_members_may_follow_each_other_and_other_bytes_after_them_are_ignored() -> None:
    two = compress(GZIP, b"one ") + compress(GZIP, b"two")
    assert decompress(GZIP, two, 7) == b"one two"
    assert decompress(GZIP, two + b"garbage", 7) == b"one two"
    assert decompress(GZIP, two + noise(1000), 7) == b"one two"
    with pytest.raises(DecompressionLimit):
        decompress(GZIP, two, 6)
    with pytest.raises(DecompressionFailed):
        decompress(GZIP, two[:-1], 7)


def test_many_gzip_members_are_read_to_the_end() -> None:
    assert decompress(GZIP, compress(GZIP, b"x") * 10_000, 10_000) == b"x" * 10_000


def test_zstd_frames_may_follow_each_other_but_nothing_else() -> None:
    one, two = compress(ZSTD, b"one "), compress(ZSTD, b"two")
    skippable = bytes.fromhex("502a4d18 03000000 616263")
    assert decompress(ZSTD, one + skippable + two, 7) == b"one two"
    assert decompress(ZSTD, skippable, 7) == b""
    for data in (one + b"garbage", one + noise(100), one + two[:-1], one + two[:5], one + skippable[:-1], one + b"\0"):
        with pytest.raises(DecompressionFailed):
            decompress(ZSTD, data, 7)


def test_zstd_frames_of_other_writers_are_read() -> None:
    for options in ({}, {"write_checksum": True}, {"write_content_size": False}, {"threads": 2}):
        for data in (b"", b"a", TEXT):
            assert decompress(ZSTD, zstandard.ZstdCompressor(**options).compress(data), len(data)) == data


def test_a_zstd_window_as_large_as_level_22_announces_is_accepted_and_no_larger() -> None:
    last_raw_block = (1 | 3 << 3).to_bytes(3, "little") + b"abc"
    assert decompress(ZSTD, bytes.fromhex("28b52ffd 00 88") + last_raw_block, 3) == b"abc"
    with pytest.raises(DecompressionFailed):
        decompress(ZSTD, bytes.fromhex("28b52ffd 00 90") + last_raw_block, 3)


def test_lz4_reads_one_frame_and_ignores_what_follows() -> None:
    frame = compress(LZ4, b"one")
    assert decompress(LZ4, frame + frame, 3) == b"one"
    assert decompress(LZ4, frame + b"garbage", 3) == b"one"


@pytest.mark.parametrize(
    "options",
    [
        {"content_checksum": True},
        {"block_checksum": True},
        {"store_size": True},
        {"block_size": lz4.frame.BLOCKSIZE_MAX256KB},
        {
            "block_size": lz4.frame.BLOCKSIZE_MAX4MB,
            "store_size": True,
            "content_checksum": True,
            "block_checksum": True,
        },
    ],
)
def test_lz4_frames_of_other_writers_are_read_in_every_format(options: dict[str, object]) -> None:
    frame = lz4_frame(TEXT, **options)
    checksum_at = 14 if "store_size" in options else 6
    broken = frame[:checksum_at] + bytes([frame[checksum_at] ^ 0x55]) + frame[checksum_at + 1 :]
    for magic in (0, 1, 2):
        assert decompress(LZ4, frame, MIB, magic=magic) == TEXT
    for magic in (0, 1):
        assert decompress(LZ4, broken, MIB, magic=magic) == TEXT
    with pytest.raises(DecompressionFailed):
        decompress(LZ4, broken, MIB, magic=2)


def test_lz4_frames_read_block_by_block_are_read_as_the_library_reads_frames() -> None:
    def outcome(data: bytes, limit: int) -> bytes | tuple[object, ...]:
        try:
            return bytes(decompress(LZ4, data, limit))
        except (DecompressionFailed, DecompressionLimit) as error:
            return type(error), error.args

    chance, found = random.Random(4), set()
    for data in (b"", b"a", TEXT[:3000], noise(70_000), TEXT[:500] + noise(70_000)):
        frame = lz4_frame(data)
        for _ in range(150):
            changed = bytearray(frame)
            for _ in range(chance.randrange(3)):
                near = chance.choice((20, len(frame)))
                changed[chance.randrange(min(near, len(frame)))] = chance.choice(
                    (0, 1, 0x7F, 0x80, chance.randrange(256))
                )
            limit = chance.choice((MIB, len(data), max(0, len(data) - 1), chance.randrange(MIB)))
            asked = bytes(changed[: chance.choice((len(frame), chance.randrange(len(frame) + 1)))])
            fast = outcome(asked, limit)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("minibroker.log.compression._unlz4_plain", lambda *_: iter(()))
                assert fast == outcome(asked, limit)
            found.add(type(fast) if isinstance(fast, bytes) else fast[0])
    assert found == {bytes, DecompressionFailed, DecompressionLimit}


def test_lz4_frames_that_kafka_cannot_read_are_refused() -> None:
    good = compress(LZ4, TEXT)
    dictionary = bytes.fromhex("04224d18 61 40 00000000 00")
    for data in (lz4_frame(TEXT, block_linked=True), b"\x50\x2a" + good[2:], dictionary, good[:5] + b"\x30" + good[6:]):
        for magic in (0, 2):
            with pytest.raises(DecompressionFailed):
                decompress(LZ4, data, MIB, magic=magic)


def test_snappy_streams_may_follow_each_other_and_up_to_three_bytes_after_them_are_ignored() -> None:
    one, two = compress(SNAPPY, b"one "), compress(SNAPPY, b"two")
    assert decompress(SNAPPY, one + two, 7) == b"one two"
    assert decompress(SNAPPY, one + two + b"\0\0\0", 7) == b"one two"
    for data in (one + two[:-1], one + b"garbage", one + two[:12], one[:8] + bytes(8) + one[16:]):
        with pytest.raises(DecompressionFailed):
            decompress(SNAPPY, data, 7)


# Limits


@pytest.mark.parametrize("data", SAMPLES[1:])
@pytest.mark.parametrize(("codec", "magic"), FORMATS)
def test_one_byte_too_much_is_too_much(codec: int, magic: int, data: bytes) -> None:
    packed = compress(codec, data, magic=magic)
    with pytest.raises(DecompressionLimit):
        decompress(codec, packed, len(data) - 1, magic=magic)


def zstd_bomb(size_bytes: int) -> bytes:
    """Return a frame of runs, four bytes for every 128 KiB of zeros. 64 MiB take 2 KiB."""
    run = 128 * 1024
    blocks = ((run << 3 | 1 << 1).to_bytes(3, "little") + b"\0") * (size_bytes // run)
    return bytes.fromhex("28b52ffd 00 88") + blocks + (1).to_bytes(3, "little")


BOMBS = {
    "gzip": lambda: compress(GZIP, bytes(64 * MIB), level=1),
    "snappy": lambda: compress(SNAPPY, bytes(64 * MIB)),
    "raw snappy": lambda: snappy.compress(bytes(64 * MIB)),
    "lz4": lambda: lz4_frame(bytes(64 * MIB), block_size=lz4.frame.BLOCKSIZE_MAX4MB),
    "runs in zstd": lambda: zstd_bomb(64 * MIB),
    "honest zstd": lambda: zstandard.ZstdCompressor().compress(bytes(64 * MIB)),
    "zstd": lambda: compress(ZSTD, noise(64) * MIB),
    "wide window in zstd": lambda: compress(ZSTD, noise(64) * MIB).replace(b"\0\x58", b"\0\x88", 1),
}


def test_the_zstd_bomb_is_2_kb_and_holds_64_mb() -> None:
    bomb = zstd_bomb(64 * MIB)
    assert len(bomb) < 2100
    assert len(decompress(ZSTD, bomb, 64 * MIB)) == 64 * MIB


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_allocates_no_more_python_memory_than_the_limit(name: str) -> None:
    codec, bomb = CODEC_NAMES.index(name.split()[-1]), BOMBS[name]()
    with pytest.raises(DecompressionLimit):
        decompress(codec, bomb, MIB)  # imports what it needs
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionLimit):
            decompress(codec, bomb, MIB)
        assert tracemalloc.get_traced_memory()[1] < MIB + MIB // 8 + 6 * PIECE_BYTES
    finally:
        tracemalloc.stop()


# The codecs' own memory is invisible to tracemalloc, so a fresh process says how much of it was ever resident.
MEASURE = """
import sys
from minibroker.errors import DecompressionLimit
from minibroker.log.compression import compress, decompress

def resident_bytes_max():
    with open("/proc/self/status") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

codec, limit, bomb = int(sys.argv[1]), int(sys.argv[2]), sys.stdin.buffer.read()
decompress(codec, compress(codec, b"imports what it needs"), 100)
before = resident_bytes_max()
try:
    decompress(codec, bomb, limit)
except DecompressionLimit:
    print(resident_bytes_max() - before)
"""


@pytest.mark.outside
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's account of memory")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_of_64_mb_makes_no_more_memory_resident_than_the_limit_allows(name: str) -> None:
    codec, limit = CODEC_NAMES.index(name.split()[-1]), 4 * MIB
    command = [sys.executable, "-c", MEASURE, str(codec), str(limit)]
    grown_bytes = int(subprocess.run(command, input=BOMBS[name](), stdout=subprocess.PIPE, check=True).stdout)
    window = {LZ4: 8 * MIB, ZSTD: limit if "wide" in name else 2 * MIB}.get(codec, 0)
    # The last term is the allocator's: 3.3 MiB were seen, on Python 3.13.
    assert grown_bytes < limit + limit // 8 + window + 6 * MIB


CLAIMS = [
    pytest.param(SNAPPY, 2, bytes.fromhex("ffffffff0f 00 61"), id="snappy"),
    pytest.param(LZ4, 0, bytes.fromhex("04224d18 68 70 0000000000000040 00 00000000"), id="lz4"),
    pytest.param(ZSTD, 2, bytes.fromhex("28b52ffd e0 0000000080000000 010000"), id="zstd"),
]


@pytest.mark.parametrize(("codec", "magic", "data"), CLAIMS)
def test_a_size_that_is_only_claimed_gets_no_memory(codec: int, magic: int, data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionFailed):
            decompress(codec, data, 1 << 40, magic=magic)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


# Nonsense

INPUTS = [b"", b"a", TEXT[:300], TEXT[:70_000], noise(400)]
PACKED = {(codec, magic): [compress(codec, data, magic=magic) for data in INPUTS] for codec, magic in FORMATS}


def try_to_decompress(codec: int, magic: int, data: bytes) -> bytes | memoryview | None:
    """Nothing but an answer within the limit or one of two errors may come out."""
    try:
        unpacked = decompress(codec, data, MIB, magic=magic)
    except (DecompressionFailed, DecompressionLimit) as error:
        assert 0 <= error.position <= len(data)
        return None
    assert len(unpacked) <= MIB
    return unpacked


@pytest.mark.parametrize(("codec", "magic"), [format for format in FORMATS if format[0] != NONE])
def test_a_stream_cut_anywhere_is_an_error(codec: int, magic: int) -> None:
    for data, packed in zip(INPUTS, PACKED[codec, magic], strict=True):
        for end in {*range(min(len(packed), 100)), *range(max(0, len(packed) - 100), len(packed))}:
            unpacked = try_to_decompress(codec, magic, packed[:end])
            # Nothing in a snappy stream says that this was the last block.
            assert unpacked is None or (codec == SNAPPY and data.startswith(bytes(unpacked)) and unpacked != data), end


@st.composite
def damaged(draw: st.DrawFn) -> tuple[int, int, bytes]:
    """Draw a valid stream with bytes changed, taken out, put in, cut off or doubled."""
    codec, magic = draw(st.sampled_from([format for format in FORMATS if format[0] != NONE]))
    data = bytearray(draw(st.sampled_from(PACKED[codec, magic])))
    for _ in range(draw(st.integers(1, 4))):
        # Half of the damage goes to the headers.
        position = draw(st.integers(0, min(len(data), 24)) | st.integers(0, len(data)))
        end = position + draw(st.integers(0, 8))
        data[position:end] = draw(st.binary(max_size=8) | st.just(data[position : position + 64]))
    return codec, magic, bytes(data[: draw(st.none() | st.integers(0, len(data)))])


@pytest.mark.slow
@settings(deadline=None, max_examples=600)
@given(damaged())
def test_damaged_streams_raise_the_two_errors_and_nothing_else(case: tuple[int, int, bytes]) -> None:
    codec, magic, data = case
    try_to_decompress(codec, magic, data)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from([format for format in FORMATS if format[0] != NONE]), st.booleans(), st.binary(max_size=200))
@example((SNAPPY, 2), False, b"")
@example((ZSTD, 2), False, b"")
def test_random_bytes_raise_the_two_errors_and_nothing_else(
    codec_and_magic: tuple[int, int], with_header: bool, data: bytes
) -> None:
    codec, magic = codec_and_magic
    header_bytes = {GZIP: 10, SNAPPY: 16, LZ4: 7, ZSTD: 6}[codec] if with_header else 0
    try_to_decompress(codec, magic, PACKED[codec, magic][0][:header_bytes] + data)


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(FORMATS), st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 20_000))
def test_any_bytes_come_back(codec_and_magic: tuple[int, int], parts: list[bytes], repeat: int) -> None:
    codec, magic = codec_and_magic
    data = b"".join(part * (repeat % (1 + len(part) * 100)) for part in parts)
    assert decompress(codec, compress(codec, data, magic=magic), len(data), magic=magic) == data


# Start-up


@pytest.mark.outside
@pytest.mark.parametrize("codec", [NONE, *COMPRESSED])
def test_a_codec_imports_its_own_package_at_its_first_use_and_no_other(codec: int) -> None:
    code = f"""
import sys
from minibroker.log.compression import compress, decompress
packages = {{"snappy", "cramjam", "lz4", "zstandard", "google_crc32c"}}
assert not packages & sys.modules.keys(), sys.modules.keys()
assert not {{"typing", "re", "enum", "dataclasses", "logging", "pathlib"}} & {{*sys.modules}} - {{*sys.argv[1:]}}
assert decompress({codec}, compress({codec}, b"value"), 5) == b"value"
print(*sorted(packages & sys.modules.keys()))
"""
    bare = subprocess.run([sys.executable, "-c", "import sys; print(*sys.modules)"], stdout=subprocess.PIPE, check=True)
    command = [sys.executable, "-c", code, *bare.stdout.decode().split()]
    loaded = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode().split()
    assert loaded == {SNAPPY: ["cramjam", "snappy"], LZ4: ["lz4"], ZSTD: ["zstandard"]}.get(codec, [])

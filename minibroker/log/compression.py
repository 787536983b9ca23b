"""Compression of records: the codecs of Kafka and the framing that its Java clients put around each.

Codec numbers are those of the batch attributes, bits 0-2. What `compress` writes begins as Kafka's own output does:

    gzip    1f 8b 08 00, time 0, 00, system ff, then deflate data, CRC-32, size: one member
    snappy  82 "SNAPPY" 00, version int32 1, compatible int32 1, then per 32 KiB of input: int32 length, raw block
    lz4     frame: 04 22 4d 18, FLG 60, BD 40, header checksum 82 (1a in v0): independent 64 KiB blocks, no checksums
    zstd    frame: 28 b5 2f fd, 00 and the window of the level: neither content size nor checksum

Invariant: `decompress` keeps at most `limit` bytes of output (its buffer may be an eighth larger) and a working space:
64 KiB, for lz4 two blocks (at most 8 MiB), for zstd the window and for snappy the current block, but neither ever more
than the limit. What the input claims about its size can make it fail, never make room.
Input that a codec cannot read raises DecompressionFailed or DecompressionLimit and nothing else.
Unpacking is done in pieces of half a millisecond, by what has been given out and gone through (in_pieces.py): a few KB
can become 64 MiB, or be thousands of empty blocks. Only a block is done at once, which raw snappy may be as a whole.
Compressing is done at once, or in pieces of about a millisecond: 1 MiB takes 8 ms with snappy and lz4, 20 with zstd and
70 with gzip, and more with a level above the default one.
Kafka: knows no such pauses; zstd compresses 128 KiB at once, which above level 19 takes longer than others should wait.
Each codec's package is imported when its codec is first used.
Not here: which part of a batch is compressed and how often batches nest (records.py).
"""

from __future__ import annotations

from io import BytesIO
from struct import Struct as Layout
from struct import error as StructError

from minibroker.errors import DecompressionFailed, DecompressionLimit, UnknownCodec
from minibroker.in_pieces import PIECE_US, finish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    import zstandard

    from minibroker.in_pieces import InPieces

    Packing = Generator[bytes, bytes | bytearray | memoryview | None, None]

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")  # index = codec number; the names of `compression.type`

# Codec -> lowest level, highest level, default: compression.gzip.level, compression.lz4.level, compression.zstd.level.
LEVELS = {GZIP: (1, 9, -1), LZ4: (1, 17, 9), ZSTD: (-131072, 22, 3)}


def compress(codec: int, data: bytes | bytearray | memoryview, *, level: int | None = None, magic: int = 2) -> bytes:
    """Compress records as the magic's batch format wants them; `level` None is Kafka's default for the codec."""
    _check_codec(codec, magic)
    level = check_level(codec, level)
    if codec == NONE:
        return bytes(data)
    if codec == LZ4:
        return _lz4_frame(data, level, magic)
    stream = _STREAMS[codec](level, magic)
    return b"".join((next(stream), stream.send(data), stream.send(None)))


def compress_in_pieces(codec: int, data: bytes, *, level: int | None = None, magic: int = 2) -> InPieces[bytes]:
    """Return what `compress` would, if not byte by byte; yield after each piece."""
    if len(data) <= INPUT_PIECE_BYTES or codec == NONE:
        return compress(codec, data, level=level, magic=magic)
    compressor = Compressor(codec, level=level, magic=magic)
    yield from compressor.add(data)
    return compressor.end()


INPUT_PIECE_BYTES = 16 * 1024  # 1 ms for gzip, which is the slowest
INPUT_PIECE_US = {GZIP: 1100, SNAPPY: 250, LZ4: 130, ZSTD: 320}
UNUSUAL_US = 2000  # with another level than the default one: up to that and more


class Compressor:
    """Compresses what comes bit by bit, and holds no more of it than a piece."""

    def __init__(self, codec: int, *, level: int | None = None, magic: int = 2):
        _check_codec(codec, magic)
        level = check_level(codec, level)
        self._is_plain = codec == NONE
        self._pending = bytearray()
        self._parts: list[bytes] = []
        if self._is_plain:
            return
        is_usual = codec not in LEVELS or level == LEVELS[codec][2]
        self._piece_us = INPUT_PIECE_US[codec] if is_usual else UNUSUAL_US
        self._piece_bytes = SNAPPY_BLOCK_BYTES if codec == SNAPPY else INPUT_PIECE_BYTES
        self._stream = _STREAMS[codec](level, magic)
        self._parts.append(next(self._stream))

    def add(self, data: bytes) -> InPieces[None]:
        """Take more; yield after each piece."""
        if self._is_plain:
            self._parts.append(data)
            return
        pending, size = self._pending, self._piece_bytes
        if len(pending) + len(data) < size:
            pending += data
            return
        view, start = memoryview(data), 0
        if pending:
            start = size - len(pending)
            pending += view[:start]
            self._parts.append(self._stream.send(bytes(pending)))
            yield self._piece_us
            pending.clear()
        while len(view) - start >= size:
            self._parts.append(self._stream.send(view[start : start + size]))
            yield self._piece_us
            start += size
        pending += view[start:]

    def end(self) -> bytes:
        """Return what all of it has become."""
        if not self._is_plain:
            if self._pending:
                self._parts.append(self._stream.send(bytes(self._pending)))
            self._parts.append(self._stream.send(None))
        return b"".join(self._parts)


def decompress(codec: int, data: bytes | bytearray | memoryview, limit: int, *, magic: int = 2) -> bytes | memoryview:
    """Return the records that `data` holds, or raise DecompressionLimit as soon as they exceed `limit` bytes.

    Uncompressed data is handed back as a view, without a copy. Positions in errors count from the start of `data`.
    """
    return finish(decompress_in_pieces(codec, data, limit, magic=magic))


def decompress_in_pieces(
    codec: int, data: bytes | bytearray | memoryview, limit: int, *, magic: int = 2
) -> InPieces[bytes | memoryview]:
    """Return what `decompress` does, and raise as it does; of what is small nothing is yielded."""
    _check_codec(codec, magic)
    view = memoryview(data)
    if codec == NONE:
        if len(view) > limit:
            raise _over_limit(limit)
        return data if type(data) is bytes else view
    output = _Output(limit, BYTES_PER_US[codec])
    if codec == GZIP:
        yield from _gunzip(view, output)
    elif codec == SNAPPY:
        yield from _unsnappy(view, output)
    elif codec == LZ4:
        if not (yield from _unlz4_plain(view, output)):
            output = _Output(limit, BYTES_PER_US[codec])
            yield from _unlz4(view, output, magic)
    else:
        yield from _unzstd(view, output)
    return output.getvalue()


def check_level(codec: int, level: int | None) -> int:
    """Return the level to use; ValueError says which ones the codec has."""
    if codec not in LEVELS:
        if level is not None:
            raise ValueError(f"{CODEC_NAMES[codec]} has no compression levels, given {level}")
        return 0
    lowest, highest, default = LEVELS[codec]
    if level is None or level == default:
        return default
    if not lowest <= level <= highest:
        other = "" if lowest <= default else f" or {default}"
        raise ValueError(f"{CODEC_NAMES[codec]} level {level} is outside {lowest}..{highest}{other}")
    return level


def _check_codec(codec: int, magic: int) -> None:
    if not NONE <= codec <= ZSTD:
        raise UnknownCodec(f"codec {codec} is none of 0..4")
    if codec == ZSTD and magic < 2:
        raise UnknownCodec(f"zstd came with batch format 2, KIP-110; this is format {magic}")


# Output, bounded

PIECE_BYTES = 64 * 1024  # input is fed and output taken in pieces of this size
BYTES_PER_US = {GZIP: 256, SNAPPY: 768, LZ4: 1024, ZSTD: 1024}  # given out
STEP_US = 1  # of Python, for a block or a piece


class _Output:
    """Collects what a codec gives out and stops it at the limit."""

    __slots__ = ("_buffer", "_bytes_per_us", "_first", "_limit", "size_bytes", "spent_us")

    def __init__(self, limit: int, bytes_per_us: int):
        self._first = b""  # a sole piece is handed over as it is
        # Grows by an eighth at a time and hands its bytes over without a copy; a list to join needs twice the room.
        self._buffer: BytesIO | None = None
        self._limit = limit
        self._bytes_per_us = bytes_per_us
        self.size_bytes = 0  # so far; never above the limit
        self.spent_us = 0  # since the last pause, about

    def wanted_bytes(self) -> int:
        """How much to ask the codec for: at the limit still one byte, so that too much shows itself."""
        return min(PIECE_BYTES, self._limit - self.size_bytes + 1)

    def announce(self, size_bytes: int) -> None:
        """Raise if so much more would be too much, before anybody makes room for it."""
        if self.size_bytes + size_bytes > self._limit:
            raise _over_limit(self._limit)

    def add(self, piece: bytes) -> None:
        self.announce(len(piece))
        if self._buffer is not None:
            self._buffer.write(piece)
        elif not self.size_bytes:
            self._first = piece
        else:
            self._buffer = BytesIO()
            self._buffer.write(self._first)
            self._buffer.write(piece)
            self._first = b""
        self.size_bytes += len(piece)
        self.spent_us += STEP_US + len(piece) // self._bytes_per_us

    def pause(self) -> int:
        """Return how long it has taken since the last pause."""
        spent_us, self.spent_us = self.spent_us, 0
        return spent_us

    def getvalue(self) -> bytes:
        return self._first if self._buffer is None else self._buffer.getvalue()


def _over_limit(limit: int) -> DecompressionLimit:
    return DecompressionLimit(f"more than the {limit} bytes allowed")


# gzip

# Method deflate, no flags, no time, no hint about the level, system unknown. zlib's own header would name a system.
GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")
GZIP_MAGIC = GZIP_HEADER[:3]
GZIP_MEMBER_BYTES_MIN = 19
GZIP_MEMBER_US = 5  # to begin one


def _gzip(level: int, magic: int) -> Packing:
    import zlib

    stream = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    checksum = size_bytes = 0
    piece = yield GZIP_HEADER
    while piece is not None:
        checksum = zlib.crc32(piece, checksum)
        size_bytes += len(piece)
        piece = yield stream.compress(piece)
    yield stream.flush() + checksum.to_bytes(4, "little") + (size_bytes & 0xFFFFFFFF).to_bytes(4, "little")


def _gunzip(data: memoryview, output: _Output) -> InPieces[None]:
    """Read one member after another.

    What follows a member and is no member itself is ignored, as java.util.zip.GZIPInputStream does.
    Kafka: a further member whose header fails its own checksum is also ignored there; here it is an error.
    """
    position = yield from _gunzip_member(data, 0, output)
    while len(data) - position >= GZIP_MEMBER_BYTES_MIN and data[position : position + 3] == GZIP_MAGIC:
        position = yield from _gunzip_member(data, position, output)


def _gunzip_member(data: memoryview, position: int, output: _Output) -> InPieces[int]:
    """Read the member at `position` and return where it ends."""
    import zlib

    stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    pending: bytes | memoryview = b""
    full = False  # zlib may hold back output that found no place, even with all input taken
    output.spent_us += GZIP_MEMBER_US
    while not stream.eof:
        if not pending and not full:
            pending = data[position : position + PIECE_BYTES]
            position += len(pending)
            if not pending:
                raise DecompressionFailed("gzip data is cut short", position)
        wanted_bytes = output.wanted_bytes()
        try:
            piece = stream.decompress(pending, wanted_bytes)
        except zlib.error as error:
            raise DecompressionFailed(f"gzip: {error}", position) from None
        output.add(piece)
        pending = stream.unconsumed_tail
        full = len(piece) == wanted_bytes
        if output.spent_us >= PIECE_US:
            yield output.pause()
    return position - len(stream.unused_data)


# snappy

SNAPPY_MAGIC = b"\x82SNAPPY\x00"
SNAPPY_HEADER = SNAPPY_MAGIC + bytes.fromhex("00000001 00000001")
SNAPPY_BLOCK_BYTES = 32 * 1024  # what Kafka's producers put into a block
SNAPPY_RATIO_MAX = 22  # three bytes can at most say: copy 64


def _snappy(level: int, magic: int) -> Packing:
    import snappy

    piece = yield SNAPPY_HEADER
    while piece is not None:
        chunks: list[bytes] = []
        for start in range(0, len(piece), SNAPPY_BLOCK_BYTES):
            block = snappy.compress(piece[start : start + SNAPPY_BLOCK_BYTES])
            chunks += len(block).to_bytes(4, "big"), block
        piece = yield b"".join(chunks)
    yield b""


def _unsnappy(data: memoryview, output: _Output) -> InPieces[None]:
    """Read the stream of Java clients, or a single raw block such as other clients send."""
    if len(data) < len(SNAPPY_HEADER) or data[: len(SNAPPY_MAGIC)] != SNAPPY_MAGIC:
        _unsnappy_block(data, 0, output)
        return
    _check_snappy_version(data, 0)
    position = len(SNAPPY_HEADER)
    # Like snappy-java: one to three bytes at the end are ignored, and streams may follow each other.
    while len(data) - position >= 4:
        output.spent_us += STEP_US
        if output.spent_us >= PIECE_US:
            yield output.pause()
        if data[position : position + 4] == SNAPPY_MAGIC[:4]:
            if data[position : position + len(SNAPPY_MAGIC)] != SNAPPY_MAGIC:
                return
            _check_snappy_version(data, position)
            position += len(SNAPPY_HEADER)
            continue
        block_bytes = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if block_bytes > len(data) - position:
            raise DecompressionFailed(f"snappy block of {block_bytes} bytes is cut short", position - 4)
        _unsnappy_block(data[position : position + block_bytes], position, output)
        position += block_bytes


def _check_snappy_version(data: memoryview, position: int) -> None:
    """The compatible version after it is not looked at, here as in snappy-java."""
    if len(data) - position < len(SNAPPY_HEADER):
        raise DecompressionFailed("snappy stream header is cut short", position)
    version = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
    if version < 1:
        raise DecompressionFailed(f"snappy stream version {version} is below 1", position + 8)


def _unsnappy_block(block: memoryview, position: int, output: _Output) -> None:
    import snappy

    size_bytes = _snappy_size(block, position)
    output.announce(size_bytes)
    # A few bytes that announce a lot are refused before the codec makes room for them.
    if size_bytes > SNAPPY_RATIO_MAX * len(block):
        raise DecompressionFailed(f"snappy block of {len(block)} bytes announces {size_bytes}", position)
    try:
        piece = snappy.uncompress(block)
    except snappy.UncompressError as error:
        raise DecompressionFailed(f"snappy: {error.__cause__ or error}", position) from None
    assert isinstance(piece, bytes)  # text comes only to those who ask for a decoding
    output.add(piece)


def _snappy_size(block: memoryview, position: int) -> int:
    """Read the varint, of at most 32 bits, that opens a raw block."""
    size_bytes = 0
    for index, byte in enumerate(block[:5]):
        size_bytes |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return size_bytes
    raise DecompressionFailed("snappy block does not begin with its size", position)


# lz4

LZ4_MAGIC = bytes.fromhex("04224d18")
LZ4_HEADER = LZ4_MAGIC + bytes.fromhex("604082")
LZ4_UNCOMPRESSED = 1 << 31  # in the size of a block
LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_SIZE = Layout("<I")
LZ4_HEADER_V0 = LZ4_MAGIC + bytes.fromhex("60401a")
LZ4_DEFAULT_LEVEL = LEVELS[LZ4][2]
LZ4_HIGH_LEVEL_MIN = 3
LZ4_HIGH_LEVEL_MAX = 12


def _lz4(level: int, magic: int) -> Packing:
    import lz4.frame

    stream = lz4.frame.LZ4FrameCompressor(
        compression_level=_lz4_level(level), block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False
    )
    header: bytes = stream.begin()
    assert header == LZ4_HEADER, header.hex()
    # The first clients summed up the magic as well, and the format kept their mistake until v1, KIP-57.
    piece = yield header if magic else LZ4_HEADER_V0
    while piece is not None:
        piece = yield stream.compress(piece)
    yield stream.flush()


def _lz4_frame(data: bytes | bytearray | memoryview, level: int, magic: int) -> bytes:
    """Return what the stream would give of all; to make the library's object for streams takes 3 µs."""
    import lz4.frame

    frame: bytes = lz4.frame.compress(
        data,
        compression_level=_lz4_level(level),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return frame if magic else LZ4_HEADER_V0 + frame[len(LZ4_HEADER) :]


def _lz4_level(level: int) -> int:
    """Return what the C library calls a level of lz4-java."""
    if level == LZ4_DEFAULT_LEVEL:
        # Kafka's default, 9, is the fast compressor; every other number, above and below, the high compressor.
        return 0
    # lz4-java takes 1 to 17; the C library knows 3 to 12 of its high compressor and puts the others to the nearest.
    return min(max(level, LZ4_HIGH_LEVEL_MIN), LZ4_HIGH_LEVEL_MAX)


def _unlz4_plain(data: memoryview, output: _Output) -> InPieces[bool]:
    """Read a frame as Kafka's own clients write it, block by block; False if there is anything else about it.

    The library's object for frames takes twice as long to make as a batch of 16 KiB to unpack.
    """
    if data[: len(LZ4_HEADER)] != LZ4_HEADER:
        return False
    import lz4.block

    position = len(LZ4_HEADER)
    try:
        while size := _LZ4_SIZE.unpack_from(data, position)[0]:
            block_bytes = size & ~LZ4_UNCOMPRESSED
            block = data[position + 4 : position + 4 + block_bytes]
            if len(block) < block_bytes or block_bytes > LZ4_BLOCK_BYTES:
                return False
            position += 4 + block_bytes
            if size & LZ4_UNCOMPRESSED:
                output.add(bytes(block))
            else:
                output.add(lz4.block.decompress(block, uncompressed_size=output.wanted_bytes()))
            if output.spent_us >= PIECE_US:
                yield output.pause()
    except (StructError, lz4.block.LZ4BlockError, DecompressionLimit):
        return False  # what is wrong with it, and where, is said by who reads all frames
    return True


def _unlz4(data: memoryview, output: _Output, magic: int) -> InPieces[None]:
    """Read one frame; what follows it is ignored, as Kafka's Lz4BlockInputStream does.

    Kafka: older releases do not look at the content checksum, and none at the content size; here both must be right.
    """
    import lz4.frame

    pending = _lz4_header(data, magic)
    position = len(pending)
    stream = lz4.frame.LZ4FrameDecompressor()
    while True:
        wanted_bytes = output.wanted_bytes()
        try:
            piece = stream.decompress(pending, wanted_bytes)
        except RuntimeError as error:
            raise DecompressionFailed(f"lz4: {error}", position) from None
        output.add(piece)
        if stream.eof:
            return
        if output.spent_us >= PIECE_US:
            yield output.pause()
        pending = b""
        # As in gzip: a full piece may leave output behind in the codec.
        if stream.needs_input and len(piece) < wanted_bytes:
            pending = bytes(data[position : position + PIECE_BYTES])
            position += len(pending)
            if not pending:
                raise DecompressionFailed("lz4 frame is cut short", position)


def _lz4_header(data: memoryview, magic: int) -> bytes:
    """Return the frame header with the checksum that the library expects.

    Refused like in Kafka: other kinds of frames, reserved bits, dictionaries, blocks that build on each other.
    Kafka: v0 is read with any header checksum, v1 only with the right one; here both with any, for clients that send
    the wrong one in v1 too.
    """
    if len(data) < 7:
        raise DecompressionFailed("lz4 frame header is cut short", len(data))
    if data[:4] != LZ4_MAGIC:
        raise DecompressionFailed(f"lz4 frame begins with {data[:4].hex()}", 0)
    flags, block_descriptor = data[4], data[5]
    if flags & 0b1110_0011 != 0b0110_0000:
        raise DecompressionFailed(f"lz4 frame flags {flags:#04x} are not supported", 4)
    if block_descriptor not in (0x40, 0x50, 0x60, 0x70):
        raise DecompressionFailed(f"lz4 block descriptor {block_descriptor:#04x} is not supported", 5)
    descriptor = bytes(data[4 : 14 if flags & 0b1000 else 6])  # with the content size, if it is there
    checksum = data[4 + len(descriptor) : 5 + len(descriptor)]
    if not checksum:
        raise DecompressionFailed("lz4 frame header is cut short", len(data))
    return LZ4_MAGIC + descriptor + (bytes(checksum) if magic >= 2 else _lz4_header_checksum(descriptor))


def _lz4_header_checksum(descriptor: bytes) -> bytes:
    """Return the second byte of xxHash32."""
    import xxhash

    return bytes([xxhash.xxh32_intdigest(descriptor) >> 8 & 0xFF])


# zstd

ZSTD_MAGIC = bytes.fromhex("28b52ffd")
ZSTD_SKIPPABLE = bytes.fromhex("2a4d18")  # after a byte 50..5f: a frame to pass over
ZSTD_DEFAULT_LEVEL = LEVELS[ZSTD][2]

# What zstd itself and so Kafka accept, and what a Java producer announces at level 22 even for ten bytes. The window is
# reserved as address space; memory is used only for the part of it that output has passed through.
ZSTD_WINDOW_BYTES_MAX = 128 * 1024 * 1024

# Setting up a context takes 20 to 35 µs, compressing 1 KiB takes 5. So contexts that hold little memory are kept for
# the next call; one is out of its list while in use, so two threads never share it.
_idle_compressors: list[zstandard.ZstdCompressor] = []  # of the default level
_idle_decompressors: list[zstandard.ZstdDecompressor] = []
IDLE_OUTPUT_BYTES_MAX = 1024 * 1024  # a decompressor that has given out more has grown and is dropped


def _zstd(level: int, magic: int) -> Packing:
    import zstandard

    idle = _idle_compressors if level == ZSTD_DEFAULT_LEVEL else []
    try:
        compressor = idle.pop()
    except IndexError:
        compressor = zstandard.ZstdCompressor(level=level, write_content_size=False)
    # As a stream of unknown length, like Java: the frame then names the window of the level, whatever it holds.
    stream = compressor.compressobj()
    piece = yield b""
    while piece is not None:
        piece = yield stream.compress(piece)
    end = stream.flush()
    idle.append(compressor)
    yield end


def _unzstd(data: memoryview, output: _Output) -> InPieces[None]:
    """Read one frame after another; anything else between or behind them is an error, as in zstd-jni's stream."""
    import zstandard

    yield from _check_zstd_frames(data, output)
    try:
        decompressor = _idle_decompressors.pop()
    except IndexError:
        decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
    reader = decompressor.stream_reader(data, read_across_frames=True)
    try:
        while piece := reader.read(output.wanted_bytes()):
            output.add(piece)
            if output.spent_us >= PIECE_US:
                yield output.pause()
    except zstandard.ZstdError as error:
        raise DecompressionFailed(f"zstd: {error}") from None
    if output.size_bytes <= IDLE_OUTPUT_BYTES_MAX:
        _idle_decompressors.append(decompressor)


def _check_zstd_frames(data: memoryview, output: _Output) -> InPieces[None]:
    """Raise unless the data is a row of whole frames: the library takes the end of the data for the end of a frame.

    Sizes that the frames admit to count against the limit here already, so the usual bomb is never opened.
    """
    position = size_bytes = 0
    while True:
        position, frame_size_bytes = yield from _zstd_frame_end(data, position, output)
        if position > len(data):
            raise DecompressionFailed("zstd frame is cut short", len(data))
        size_bytes += frame_size_bytes
        output.announce(size_bytes)
        if position == len(data):
            return


def _zstd_frame_end(data: memoryview, position: int, output: _Output) -> InPieces[tuple[int, int]]:
    """Return where the frame at `position` ends, behind the data if it is cut short, and at least how much it holds.

    Only headers are read, RFC 8878: a frame has a header, blocks, and perhaps a checksum.
    """
    output.spent_us += 2 * STEP_US
    if output.spent_us >= PIECE_US:
        yield output.pause()
    head = bytes(data[position : position + 18])
    if len(head) < 8:  # no frame of any kind is shorter
        return position + 8, 0
    if head[1:4] == ZSTD_SKIPPABLE and head[0] >> 4 == 5:
        return position + 8 + int.from_bytes(head[4:8], "little"), 0
    if head[:4] != ZSTD_MAGIC:
        raise DecompressionFailed(f"zstd frame begins with {head[:4].hex()}", position)
    descriptor = head[4]
    single_segment = descriptor >> 5 & 1  # no window field, but always a content size
    content_size_at = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    header_bytes = content_size_at + (single_segment, 2, 4, 8)[descriptor >> 6]
    declared_bytes = int.from_bytes(head[content_size_at:header_bytes], "little")  # two bytes leave out 256
    position += header_bytes
    known_bytes = last = 0
    while not last and position < len(data):
        block = int.from_bytes(data[position : position + 3], "little")
        last, kind, block_bytes = block & 1, block >> 1 & 3, block >> 3
        position += 3 + (1 if kind == 1 else block_bytes)  # a run stores its byte once
        if kind < 2:  # stored or a run: the size is that of the content
            known_bytes += block_bytes
        output.spent_us += STEP_US
        if output.spent_us >= PIECE_US:
            yield output.pause()
    end = position + (4 if descriptor & 4 else 0) if last else len(data) + 1
    return end, max(known_bytes, declared_bytes)


# Each gives its header, then for every piece what that has become, and for None the end.
_STREAMS = {GZIP: _gzip, SNAPPY: _snappy, LZ4: _lz4, ZSTD: _zstd}

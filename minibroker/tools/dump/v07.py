"""The log of Kafka 0.7, an exhibit: there an offset is a place in a file.

    message   size int32       bytes after this field
              magic int8       0 or 1
              attributes int8  only with magic 1; bits 0-1: codec (0 none, 1 gzip, 2 snappy)
              crc uint32       CRC-32 of the payload
              payload          no key, no timestamp; compressed: a message set of the same form

A message has no offset of its own: it is the name of the file, which is where the file begins in the log, plus the
position in the file. The next message's is that plus 4 plus the size, so offsets jump, and neither a copy of the log
elsewhere nor a compacted one could keep them. That is why 0.8 writes an offset into every message.

Messages that were compressed together share the place of their wrapper. A consumer that has taken some of them goes
on saying the wrapper's own offset and only behind the last one the next: after a stop in between it reads again.
Not here: reading from disk, brokers. Nothing but `minibroker dump --explain-offsets` uses this.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

from minibroker.errors import CorruptCrc, InvalidLength, InvalidMagic, ProtocolError, TooDeep, Truncated, UnknownCodec
from minibroker.log.compression import NONE, SNAPPY, compress, decompress

CODEC_MASK = 0b11
SIZE_BYTES = 4
UNPACKED_BYTES_MAX = 64 << 20


class MessageV07:
    """One message as a consumer of 0.7 gets it."""

    __slots__ = ("codec", "magic", "next_offset", "offset", "payload", "position", "size")

    def __init__(self, position: int, offset: int, next_offset: int, size: int, magic: int, codec: int, payload: bytes):
        self.position = position  # in the file; of a message within a wrapper that of the wrapper
        self.offset = offset  # where it can be fetched: start of the file in the log plus position
        self.next_offset = next_offset  # where a consumer goes on that has taken it
        self.size = size  # as written in front of it; the message takes 4 bytes more
        self.magic = magic
        self.codec = codec
        self.payload = payload  # of a wrapper a compressed message set

    def __repr__(self) -> str:
        return f"<MessageV07 at offset {self.offset}, next {self.next_offset}>"


def messages(data: bytes | memoryview, start_offset: int = 0) -> Iterator[MessageV07]:
    """Yield the messages of a file as they lie there, wrappers unopened; `start_offset` is the file's name."""
    position, end = 0, len(data)
    while position < end:
        if end - position < SIZE_BYTES:
            raise Truncated(f"{end - position} bytes are left, a size needs 4", position, "MessageV07.size")
        size = int.from_bytes(data[position : position + SIZE_BYTES], "big", signed=True)
        start = position + SIZE_BYTES
        if size < 5:
            raise InvalidLength(f"size {size} is below the 5 that a message needs", position, "MessageV07.size")
        if size > end - start:
            raise Truncated(f"needs {size} bytes, {end - start} are left", position, "MessageV07.size")
        magic = data[start]
        if magic > 1:
            raise InvalidMagic(f"{magic} is not 0 or 1", start, "MessageV07.magic")
        if size < 5 + magic:
            raise InvalidLength(f"size {size} leaves no room for attributes", position, "MessageV07.size")
        crc_at = start + 1 + magic
        payload = bytes(data[crc_at + 4 : start + size])
        crc = int.from_bytes(data[crc_at : crc_at + 4], "big")
        if crc32(payload) != crc:
            raise CorruptCrc(f"{crc:#010x} is not the checksum of the payload", crc_at, "MessageV07.crc")
        codec = data[start + 1] & CODEC_MASK if magic else NONE
        if codec > SNAPPY:
            raise UnknownCodec(f"{codec} is none of 0, 1, 2", start + 1, "MessageV07.attributes")
        offset = start_offset + position
        yield MessageV07(position, offset, offset + SIZE_BYTES + size, size, magic, codec, payload)
        position = start + size


def consumed(data: bytes | memoryview, start_offset: int = 0) -> Iterator[MessageV07]:
    """Yield the messages as a consumer of 0.7 sees them, wrappers opened."""
    for outer in messages(data, start_offset):
        yield from within(outer)


def within(outer: MessageV07) -> Iterator[MessageV07]:
    """Yield what a wrapper holds; of any other message itself."""
    if outer.codec == NONE:
        yield outer
        return
    inner = list(messages(decompress(outer.codec, outer.payload, UNPACKED_BYTES_MAX, magic=0)))
    for number, message in enumerate(inner, 1):
        if message.codec != NONE:
            raise TooDeep("a compressed message within a compressed message", outer.position, "MessageV07.attributes")
        message.position, message.offset = outer.position, outer.offset
        message.next_offset = outer.next_offset if number == len(inner) else outer.offset
        yield message


def build_message(payload: bytes, magic: int = 1, codec: int = NONE) -> bytes:
    """Return the bytes of a message; with a codec the payload must be a message set, which gets compressed."""
    packed = bytes(compress(codec, payload, magic=0)) if codec else payload
    head = bytes([magic, codec] if magic else [magic])
    content = head + crc32(packed).to_bytes(4, "big") + packed
    return len(content).to_bytes(SIZE_BYTES, "big") + content


def looks_like_v07(data: bytes | memoryview) -> bool:
    """Whether a file begins with a message of 0.7: in later formats the first four bytes are those of an offset."""
    try:
        next(messages(data), None)
    except ProtocolError:
        return False
    return len(data) > 0

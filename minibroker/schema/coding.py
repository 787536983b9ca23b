"""Messages read and written by the codecs of their versions: the few lines that every request passes.

The codec of a version is written at its first use (compile.py). It checks just enough to notice that something is
wrong; what and where it is, is found by the slow walk (walk.py).
"""

from __future__ import annotations

from struct import error as LayoutError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

# What generated code may raise about bytes, and about values: it does not look closely.
READ_FAILURES: Final = (LayoutError, IndexError, ValueError)
WRITE_FAILURES: Final = (LayoutError, AttributeError, TypeError, ValueError)
CHUNK_BYTES_MIN: Final = 4096  # from here on a system call with one more piece is cheaper than the copy


def decode_from(cls: Any, buffer: bytes | bytearray | memoryview, position: int, version: int) -> tuple[Any, int]:
    """Read one message from `position` on; return it and the position behind it."""
    read = cls.schema.decoders.get(version) or cls._make_decoder(version)
    try:
        message, end = read(buffer, position, len(buffer))
        if end <= len(buffer):
            return message, end
    except READ_FAILURES:
        pass  # The fast path says that something is wrong, the slow one says what and where.
    from minibroker.schema.walk import diagnose

    raise diagnose(cls, buffer, position, version)


def encode_chunks(message: Any, version: int) -> list[bytes | memoryview]:
    """Return the bytes in pieces, with every `Records` value as it was given: it is never joined or copied."""
    return joined(encode_parts(message, version))


def encode_parts(message: Any, version: int) -> list[Any]:
    """Return the bytes as the codec has written them."""
    parts: list[Any] = []
    write = message.schema.encoders.get(version) or message._make_encoder(version)
    try:
        write(message, parts)
    except WRITE_FAILURES as failure:
        from minibroker.schema.walk import diagnose_value

        raise diagnose_value(message, version, failure) from failure
    return parts


def joined(parts: list[Any]) -> list[bytes | memoryview]:
    """Return few long pieces for many short ones."""
    for part in parts:
        if len(part) >= CHUNK_BYTES_MIN:
            break
    else:
        return [b"".join(parts)]  # nearly all messages
    chunks: list[bytes | memoryview] = []
    small: list[bytes] = []
    for part in parts:
        if type(part) is bytes and len(part) < CHUNK_BYTES_MIN:
            small.append(part)
        else:
            if small:
                chunks.append(b"".join(small))
                small = []
            chunks.append(part)
    if small:
        chunks.append(b"".join(small))
    return chunks

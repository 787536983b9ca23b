"""Varints: 7 bits a byte, low ones first, and the tagged sections that are made of them.

Unsigned in flexible versions of messages, zigzag (the sign in the lowest bit) in records of format v2.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final


def read_uvarint(buf: Any, pos: int, bytes_max: int = 5) -> tuple[int, int]:
    """Read an unsigned varint: 7 bits a byte, low ones first. Five bytes carry 32 bits, ten carry 64.

    Kafka: drops the bits of the last byte that have no room; here such a number is too large.
    """
    value = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift == 7 * bytes_max:
            raise ValueError("varint too long")
    if value >> (32 if bytes_max == 5 else 64):
        raise ValueError("varint too large")
    return value, pos


def uvarint(value: int) -> bytes:
    """Return the bytes of an unsigned varint."""
    if value < 0x80:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_uvarint(value: int) -> bytes:
    """Return the bytes of the length of a string, which is counted from one; ValueError if it is too long."""
    if value > STRING_BYTES_MAX + 1:
        raise ValueError("string too long")
    return uvarint(value)


# Two bytes count a string where the length is no varint. Where it is one a string is no longer: it may have to go into
# a row or a version of the other kind.
STRING_BYTES_MAX: Final = 0x7FFF
ONE_BYTE: Final = [bytes((value,)) for value in range(0x80)]


def zigzag(value: int) -> int:
    """Return the unsigned number that a signed varint travels as."""
    return value << 1 if value >= 0 else ~(value << 1)


def skip_unknown_tags(message: Any, buf: Any, pos: int, end: int, count: int) -> int:
    """Keep `count` tagged fields that this version does not know, return the position behind them."""
    for _ in range(count):
        tag, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        keep_unknown_tag(message, tag, bytes(buf[pos : pos + size]))
        pos += size
        if pos > end:
            raise ValueError("tagged field beyond the end")
    return pos


def keep_unknown_tag(message: Any, tag: int, data: bytes) -> None:
    """Remember a tagged field for the way back.

    Kafka: takes a tag that comes twice, the last one wins; here it is an error, as nobody can mean it.
    """
    if message.unknown_tags is None:
        message.unknown_tags = {}
    if tag in message.unknown_tags:
        raise ValueError("tag twice")
    message.unknown_tags[tag] = data


def tagged_section(known: list[tuple[int, bytes]], unknown: dict[int, bytes] | None) -> bytes:
    """Return a tagged section: how many fields, then each with its tag and size, tags ascending."""
    fields = sorted([*known, *(unknown or {}).items()])
    parts = [uvarint(len(fields))]
    for tag, data in fields:
        parts += uvarint(tag), uvarint(len(data)), data
    return b"".join(parts)

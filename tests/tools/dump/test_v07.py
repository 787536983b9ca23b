"""The log of Kafka 0.7: offsets are places."""

from __future__ import annotations

from zlib import crc32

import pytest

from minibroker.errors import CorruptCrc, InvalidLength, InvalidMagic, ProtocolError, TooDeep, Truncated, UnknownCodec
from minibroker.log.compression import GZIP, SNAPPY
from minibroker.tools.dump.v07 import build_message, consumed, looks_like_v07, messages

SIMPLE = build_message(b"hello", magic=0) + build_message(b"world!")


def test_bytes_are_size_magic_attributes_crc_and_payload() -> None:
    assert build_message(b"hello", magic=0).hex() == "0000000a003610a68668656c6c6f"
    assert build_message(b"hello").hex() == "0000000b01003610a68668656c6c6f"
    assert crc32(b"hello") == 0x3610A686


def test_offset_is_the_place_and_the_next_is_4_and_the_size_further() -> None:
    first, second = messages(SIMPLE, 368)
    assert (first.offset, first.size, first.next_offset) == (368, 10, 368 + 4 + 10)
    assert (second.offset, second.position, second.payload) == (382, 14, b"world!")
    assert second.next_offset == 368 + len(SIMPLE)


def test_a_consumer_can_begin_at_any_next_offset_and_nowhere_else() -> None:
    first, second = messages(SIMPLE)
    assert [message.payload for message in messages(SIMPLE[first.next_offset :], first.next_offset)] == [b"world!"]
    for position in range(1, second.position):
        with pytest.raises(ProtocolError):
            list(messages(SIMPLE[position:], position))


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_messages_compressed_together_share_an_offset_until_the_last_is_taken(codec: int) -> None:
    inner = b"".join(build_message(payload) for payload in (b"a", b"b", b"c"))
    data = SIMPLE + build_message(inner, codec=codec) + build_message(b"after")
    outer = list(messages(data))[2]
    assert outer.codec == codec
    taken = list(consumed(data))
    assert [message.payload for message in taken] == [b"hello", b"world!", b"a", b"b", b"c", b"after"]
    assert [message.offset for message in taken[2:5]] == [outer.offset] * 3
    # Who stops behind "b" has to say the wrapper's offset, and will get "a" and "b" again.
    assert [message.next_offset for message in taken[2:5]] == [outer.offset, outer.offset, outer.next_offset]
    assert taken[5].offset == outer.next_offset


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\0\0", Truncated),
        (b"\0\0\0\4abcd", InvalidLength),
        (b"\0\0\0\5\1abcd", InvalidLength),
        (b"\xff\xff\xff\xff\0", InvalidLength),
        (SIMPLE[:-1], Truncated),
        (b"\0\0\0\5\2\0\0\0\0", InvalidMagic),
        (SIMPLE[:-1] + b"?", CorruptCrc),
        (build_message(b"")[:5] + b"\3" + build_message(b"")[6:], UnknownCodec),
        (build_message(build_message(build_message(b"deep"), codec=GZIP), codec=GZIP), TooDeep),
    ],
)
def test_broken_bytes_are_a_typed_error(data: bytes, error: type[ProtocolError]) -> None:
    with pytest.raises(error):
        list(consumed(data))


def test_later_formats_are_not_taken_for_it() -> None:
    assert looks_like_v07(SIMPLE)
    assert not looks_like_v07(b"")
    assert not looks_like_v07(bytes(8) + SIMPLE)

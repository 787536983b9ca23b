"""What a field of records says beyond its value: how a varint comes to it, which bits are set, who has written it.

    varint_steps(b"\\x0e")             "0e = 14, zigzag 7"
    attribute_words(1, 0b1001)        "gzip, LogAppendTime"
    set_by_broker(2, "base_offset")   True: the leader writes it, whatever the producer has put there

`explain`, `dump --bytes` and comparisons of what was sent with what was stored say it in these words.
"""

from __future__ import annotations

from minibroker.log.compression import CODEC_NAMES
from minibroker.log.formats import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    TRANSACTIONAL_BIT,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

CRC_FROM: Final = (16, 16, 21)  # by magic: where in a batch what is covered begins; it ends with the batch
BIT_NAMES: Final = (
    (TRANSACTIONAL_BIT, "transactional"),
    (CONTROL_BIT, "control"),
    (DELETE_HORIZON_BIT, "delete horizon"),
)
# By magic: where a record is to be found.
PLACE: Final = (("offset",), ("offset",), ("base_offset", "partition_leader_epoch"))
# Beside these with LogAppendTime, by magic; so the checksum is made once more.
APPEND_TIME_FIELDS: Final = ((), ("attributes", "timestamp", "crc"), ("attributes", "max_timestamp", "crc"))
V0_WRAPPER: Final = ("offset", "size", "crc", "value")  # numbers within have to be written, and packed again


def varint_steps(data: bytes) -> str:
    """Return how the bytes of a signed varint come to its value: 7 bits a byte, the lowest first, then the sign."""
    unsigned = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data))
    value = unsigned >> 1 ^ -(unsigned & 1)
    steps = data.hex(" ")
    if len(data) > 1:
        parts = [f"{byte & 0x7F}{f' x {1 << 7 * place}' if place else ''}" for place, byte in enumerate(data)]
        steps += f" = {' + '.join(parts)}"
    return f"{steps} = {unsigned}, zigzag {value}"


def attribute_words(magic: int, attributes: int) -> str:
    """Return the names of the bits that are set, the codec first; of nothing, what that means."""
    codec = attributes & CODEC_MASK
    words = [CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else f"codec {codec}"]
    if not codec:
        words = ["no codec"]
    if magic:
        words.append("LogAppendTime" if attributes & APPEND_TIME_BIT else "CreateTime")
    if magic == 2:
        words += [name for bit, name in BIT_NAMES if attributes & bit]
    return ", ".join(words)


def set_by_broker(
    magic: int, field: str, attributes: int = 0, *, is_wrapper: bool = False, is_within: bool = False
) -> bool:
    """Whether the leader writes a field when it appends, of a message alone, of a wrapper, or of one within it."""
    if magic == 0 and is_wrapper:
        return field in V0_WRAPPER
    if is_within:
        return magic == 0 and field == "offset"
    if magic and attributes & APPEND_TIME_BIT and field in APPEND_TIME_FIELDS[magic]:
        return True
    return field in PLACE[magic]

"""Produced batches made by chance: in order, or spoilt in a header field, a record or the payload, and sealed again.

The same batches are put to our validation, to a slow oracle and to Kafka's own classes.
"""

from __future__ import annotations

import struct
from random import Random
from typing import NamedTuple

from minibroker.log.build import build_batch
from minibroker.log.compression import CODEC_NAMES, compress
from minibroker.log.formats import APPEND_TIME, CREATE_TIME, HEADER_BYTES
from minibroker.log.records import Record
from minibroker.log.settings import PRODUCER, UNLIMITED_MS, ValidationSettings
from tests.sealing import seal

NOW_MS = 1_600_000_000_777
NEXT_OFFSET, LEADER_EPOCH = 1000, 9
HOUR_MS = 3_600_000
INT32 = (-(2**31), -2, -1, 0, 1, 2, 16, 2**31 - 1)
INT64 = (-(2**63), -2, -1, 0, 1, 5, NOW_MS - 2 * HOUR_MS, NOW_MS + 2 * HOUR_MS, 2**63 - 1)
# Header fields: where they are, as what, and values to put there; each is also moved by a little.
FIELDS = (
    (0, ">q", (1, -1)),
    (21, ">h", (0, 7, 8, 16, 32, 64, 0x0100)),
    (23, ">i", INT32),
    (27, ">q", INT64),
    (35, ">q", INT64),
    (43, ">q", (-1, 0, 7, -5)),
    (51, ">h", (-1, 0, 3)),
    (53, ">i", INT32),
    (57, ">i", INT32),
)


class Sent(NamedTuple):
    """A batch, and what the topic is that it is sent to."""

    data: bytes
    codec: str  # compression.type
    timestamp_type: int
    before_max_ms: int
    after_max_ms: int
    compacted: bool
    size_bytes_max: int  # max.decompressed.message.bytes

    @property
    def settings(self) -> ValidationSettings:
        return ValidationSettings(
            compression_type="uncompressed" if self.codec == "none" else self.codec,
            timestamp_type=self.timestamp_type,
            timestamp_before_max_ms=self.before_max_ms,
            timestamp_after_max_ms=self.after_max_ms,
            compacted=self.compacted,
            max_decompressed_message_bytes=self.size_bytes_max,
        )


def sent(chance: Random) -> Sent:
    return Sent(
        data=_batch(chance),
        codec=PRODUCER if chance.random() < 0.7 else chance.choice(CODEC_NAMES),
        timestamp_type=APPEND_TIME if chance.random() < 0.2 else CREATE_TIME,
        before_max_ms=chance.choice((UNLIMITED_MS, UNLIMITED_MS, HOUR_MS, 10)),
        after_max_ms=chance.choice((HOUR_MS, HOUR_MS, 10, UNLIMITED_MS)),
        compacted=chance.random() < 0.2,
        size_bytes_max=chance.choice((2_147_483_639, 2_147_483_639, 2_147_483_639, 20, 60)),
    )


def _batch(chance: Random) -> bytes:
    codec = chance.choice((0, 0, 0, 0, 1, 2, 3, 4))
    data = build_batch(2, _records(chance), **_producer(chance))
    payload = bytearray(data[HEADER_BYTES:])
    if chance.random() < 0.4:
        _spoil(chance, payload)
    packed = bytearray(compress(codec, bytes(payload)))
    if codec and chance.random() < 0.1:
        _spoil(chance, packed)
    whole = bytearray(data[:HEADER_BYTES] + bytes(packed))
    whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
    whole[22] = whole[22] & ~7 | codec
    for _ in range(chance.choice((0, 0, 0, 1, 1, 2))):
        position, kind, values = chance.choice(FIELDS)
        (value,) = struct.unpack_from(kind, whole, position)
        value = value + (1 if value < 0 else -1) if chance.random() < 0.4 else chance.choice(values)
        if position == 21:
            value = value & ~7 | (value if chance.random() < 0.1 else codec) & 7
        struct.pack_into(kind, whole, position, value)
    seal(whole)
    if chance.random() < 0.02:
        whole[17] ^= 1
    return bytes(whole)


def _records(chance: Random) -> list[Record]:
    count = chance.choice((1, 1, 2, 5, 9, 20, 70))
    start_ms = NOW_MS if chance.random() < 0.8 else chance.choice((0, -1, NOW_MS - 2 * HOUR_MS, NOW_MS + 2 * HOUR_MS))
    step_ms = chance.choice((0, 1, 1, 200, -7))
    if chance.random() < 0.5:
        key = chance.choice((None, b"k", b"key"))
        headers = chance.choice(((), (), (("h", b"x"),)))
        value = bytes(chance.choice((0, 3, 59)))
        return [Record(key, value, headers, start_ms + each * step_ms) for each in range(count)]
    return [
        Record(
            chance.choice((None, b"", b"k", b"key")),
            chance.choice((None, bytes(chance.randrange(70)))),
            chance.choice(((), (), (("h", None), ("h", b"x")))),
            start_ms + each * step_ms,
        )
        for each in range(count)
    ]


def _producer(chance: Random) -> dict[str, int]:
    if chance.random() < 0.7:
        return {}
    return {"producer_id": 7, "producer_epoch": 1, "base_sequence": chance.choice((0, 5, 2**31 - 2))}


def _spoil(chance: Random, data: bytearray) -> None:
    at = chance.randrange(len(data))
    kind = chance.randrange(5)
    if kind == 0:
        data[at] = chance.choice((0, 1, 2, 127, 128, 255))
    elif kind == 1:
        data[at] ^= chance.choice((1, 2, 4, 128))
    elif kind == 2:
        del data[at:]
    elif kind == 3:
        data += bytes(chance.randrange(1, 9))
    else:
        del data[at : at + chance.randrange(1, 4)]

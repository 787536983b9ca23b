"""The three formats of records, byte by byte: the same classes are read by the codecs and by `minibroker explain`.

    v0, v1  a message set: messages one after another, each with its own offset and checksum
            compressed: one message, the wrapper, whose value is a whole message set
    v2      a batch: a header of 61 bytes, then its records, compressed or not

All begin with an offset and a size, and byte 16 is the magic, so a reader can hop from one to the next and tell the
formats apart before it knows anything else.
Not here: reading (records.py), writing (build.py), what an older or newer format keeps of a record (convert.py).
"""

from __future__ import annotations

from struct import Struct as Layout

from minibroker.schema.message import Message, Struct
from minibroker.schema.plan import FIXED, message_plan
from minibroker.schema.types import (
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    SizeVarint,
    UInt32,
    Varint,
    VarintArray,
    VarintBytes,
    VarintString,
    Varlong,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final


class MessageV0(Message, versions="0"):
    """A message of format v0: 26 bytes, key and value. Written by clients and brokers below 0.10."""

    offset: Int64  # place in the partition; in a producer's message set counted from 0
    size: Int32  # bytes after this field
    crc: UInt32  # CRC-32 of everything after this field
    magic: Int8  # which format this is: 0
    attributes: Int8  # bits 0-2: codec of a wrapper (0 none, 1 gzip, 2 snappy, 3 lz4)
    key: Bytes | None  # decides the partition; null in a wrapper
    value: Bytes | None  # what the application sent, null deletes the key; in a wrapper a compressed message set


class MessageV1(Message, versions="0"):
    """A message of format v1: as v0 with a timestamp (KIP-32), 34 bytes, key and value. Written from 0.10 to 0.11."""

    offset: Int64  # within a wrapper counted from its first message; the wrapper carries the last one's offset
    size: Int32  # bytes after this field
    crc: UInt32  # CRC-32 of everything after this field
    magic: Int8  # which format this is: 1
    attributes: Int8  # bits 0-2: codec of a wrapper; bit 3: timestamp is 0 the creation, 1 the append to the log
    timestamp: Int64  # ms since 1970, -1 is none; of a wrapper the largest within, or the append time of all of them
    key: Bytes | None  # decides the partition; null in a wrapper
    value: Bytes | None  # what the application sent, null deletes the key; in a wrapper a compressed message set


class BatchHeader(Message, versions="0"):
    """The 61 bytes in front of the records of a v2 batch (KIP-98). Written since 0.11."""

    base_offset: Int64  # offset of the first record when the batch was written, kept if compaction removes that record
    size: Int32  # bytes after this field
    partition_leader_epoch: Int32  # which leader appended it; not under the checksum
    magic: Int8  # which format this is: 2
    crc: UInt32  # CRC-32C of everything after this field
    attributes: Int16  # bits 0-2 codec, 3 append time, 4 transactional, 5 control, 6 base timestamp is a delete horizon
    last_offset_delta: Int32  # the last record's offset minus base offset, kept if compaction removes that record
    base_timestamp: Int64  # what records count their timestamps from; with bit 6 also when tombstones may go (KIP-534)
    max_timestamp: Int64  # the largest timestamp within; with append time the time of all records
    producer_id: Int64  # who wrote it, -1 unless idempotent or transactional
    producer_epoch: Int16  # which incarnation of that producer: an older one is fenced off
    base_sequence: Int32  # the first record's number in that producer's stream: repetitions and gaps show themselves
    count: Int32  # how many records follow; 0 is possible after compaction


class RecordV2(Message, versions="0"):
    """A record within a v2 batch: numbers are varints and count from what the header says, so most take one byte."""

    size: SizeVarint  # bytes after this field
    attributes: Int8  # no bit is in use
    timestamp_delta: Varlong  # timestamp minus base timestamp; may be negative
    offset_delta: Varint  # offset minus base offset
    key: VarintBytes | None  # decides the partition
    value: VarintBytes | None  # what the application sent; null deletes the key in a compacted topic
    headers: VarintArray[Header]  # what the application adds, a trace id say; brokers do not look at them (KIP-82)

    class Header(Struct):
        """A name and a value beside the record's own."""

        key: VarintString  # may repeat, may be empty, never null
        value: VarintBytes | None  # null and empty are two things


def layout(cls: type[Message], first: str = "", end: str = "") -> Layout:
    """Return the struct of the fixed-width fields from `first` on, up to `end` or to the first field that is not."""
    formats = ">"
    started = not first
    for field in message_plan(cls, 0).fields:
        started = started or field.name == first
        if field.name == end or field.type.name not in FIXED:
            break
        if started:
            formats += FIXED[field.type.name][0]
    return Layout(formats)


PREFIX_BYTES: Final = 12  # offset and size: what `size` does not count
MAGIC_POSITION: Final = 16
ATTRIBUTES_POSITION: Final = 22  # in a v2 batch: of the byte that says anything
HEADER_BYTES: Final = layout(BatchHeader).size
MESSAGE_BYTES_MIN: Final = (26, 34)  # of v0 and v1 with neither key nor value
RECORD_BYTES_MIN: Final = 7  # of v2: one byte per field

# Attributes, all formats.
CODEC_MASK: Final = 0b111
APPEND_TIME_BIT: Final = 1 << 3
# Of v2 only.
TRANSACTIONAL_BIT: Final = 1 << 4
CONTROL_BIT: Final = 1 << 5
DELETE_HORIZON_BIT: Final = 1 << 6

CREATE_TIME: Final = 0
APPEND_TIME: Final = 1
NO_TIMESTAMP_TYPE: Final = -1  # of v0

# Types of control records: the second int16 of their key.
ABORT, COMMIT, LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS = range(7)
CONTROL_NAMES: Final = (
    *("abort", "commit", "leader-change", "snapshot-header", "snapshot-footer", "kraft-version", "kraft-voters"),
)

"""The keys of a v2 batch, and nothing else of its records: what compaction looks at, hundreds of thousands a second.

Of each record only the sizes are followed to its key and to the first byte of its value. Values and headers are not
looked into: what is in a log has been checked on its way there. Numbers that a writer made longer than need be, or that
make no sense, raise Unusual: then `Batch.records` reads the batch, slowly, or says what is wrong with it.

The form in which keys are compared: up to EXACT_BYTES_MAX bytes they are themselves; in the place of longer ones stands
a digest of 128 bits, as a number, so that no short key can ever be taken for it.
Kafka: compares MD5 sums of all keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from minibroker.errors import InvalidRecord, ProtocolError
from minibroker.log.batches import Batch
from minibroker.log.compression import decompress_in_pieces
from minibroker.log.formats import HEADER_BYTES, RECORD_BYTES_MIN
from minibroker.log.record_walks import make_walk
from minibroker.log.records import DECOMPRESSED_BYTES_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.in_pieces import InPieces


MapKey = bytes | int  # a key as it is compared
EXACT_BYTES_MAX = 47  # with the 33 bytes that an object of this kind has besides, 80: no more than the next step of 16
NO_KEY = -1  # of a record without one: no digest is below 0
CHUNK_RECORDS, CHUNK_US = 128, 100  # read at once, and about how long that takes


class Unusual(Exception):
    """These bytes may be records, but not such as are written without need."""


class Chunk:
    """Some records that follow each other in a batch: lists with one entry per record."""

    __slots__ = ("ends", "has_keyless", "keys", "offsets", "start", "tombstones")

    def __init__(self, start: int):
        self.start = start  # position of the first one
        self.ends: list[int] = []  # position behind each, so where the next begins
        self.offsets: list[int] = []
        self.keys: list[MapKey] = []
        self.has_keyless = False
        self.tombstones: list[int] = []  # places in the lists of the records without value


def stored_records(batch: Batch) -> bytes:
    """Return the records of a v2 batch as they lie there; bytes, which Python reads faster than views."""
    return bytes(batch.buffer[batch.position + HEADER_BYTES : batch.end_position])


def unpacked_records(batch: Batch) -> InPieces[bytes]:
    """Return the records of a compressed v2 batch as they are without codec; large ones in pieces."""
    data = batch.buffer[batch.position + HEADER_BYTES : batch.end_position]
    if not data:
        return b""
    try:
        return bytes((yield from decompress_in_pieces(batch.codec, data, DECOMPRESSED_BYTES_MAX)))
    except ProtocolError:
        raise Unusual from None


def chunks(batch: Batch, data: bytes) -> Iterable[Chunk]:
    """Return all records of a v2 batch, which are `data`; raise Unusual when it comes to what is not."""
    count = batch.count
    if not 0 <= count * RECORD_BYTES_MIN <= len(data):
        raise Unusual
    if 0 < count <= CHUNK_RECORDS:
        # Without a generator small batches take two thirds of the time.
        chunk = read_keys(data, 0, count, batch.base_offset)
        if chunk.ends[-1] != len(data):
            raise Unusual
        return (chunk,)
    return _chunks(data, count, batch.base_offset)


def _chunks(data: bytes, count: int, base_offset: int) -> Iterator[Chunk]:
    position = 0
    while count:
        chunk = read_keys(data, position, min(count, CHUNK_RECORDS), base_offset)
        yield chunk
        count -= len(chunk.ends)
        position = chunk.ends[-1]
    if position != len(data):
        raise Unusual


def map_key(key: bytes) -> MapKey:
    """Return the form in which a key is compared."""
    return key if len(key) <= EXACT_BYTES_MAX else _digest(key)


def _digest(key: bytes) -> int:
    hashed = (_blake2b or _load())(key, digest_size=16)
    return int.from_bytes(hashed.digest(), "big")


def _load() -> Any:
    """Import what takes 15 ms and few have keys for."""
    global _blake2b
    from hashlib import blake2b

    _blake2b = blake2b
    return blake2b


_blake2b: Any = None


def read_keys(data: bytes, position: int, count: int, base_offset: int) -> Chunk:
    """Read `count` records from `position` on; raise Unusual for what the fast way cannot read."""
    chunk = Chunk(position)
    walk = _walk or _make_walk()
    try:
        chunk.has_keyless = walk(
            data, position, 0, count, 0, base_offset, chunk.ends, chunk.offsets, chunk.keys, chunk.tombstones
        )
    except InvalidRecord:
        raise Unusual from None
    return chunk


def _make_walk() -> Callable[..., bool]:
    global _walk
    _walk = make_walk(
        "offset_delta key value_size",
        trusting=True,
        parameters="base_offset, ends, offsets, keys, tombstones",
        before="add_end, add_offset, add_key, has_keyless = ends.append, offsets.append, keys.append, False",
        each="""\
if key is None:
    add_key(no_key); has_keyless = True
    if key_size != 1: raise ValueError
else: add_key(key if key_size <= exact_size_max else digest(key))
if value_size & 1:
    tombstones.append(index)
    if value_size != 1: raise ValueError
if offset_delta & 1 or pos > stop: raise ValueError
add_offset(base_offset + (offset_delta >> 1))
add_end(stop)""",
        result="has_keyless",
        scope={"no_key": NO_KEY, "exact_size_max": _EXACT_SIZE_MAX, "digest": _digest},
    )
    return _walk


_walk: Callable[..., bool] | None = None


def read_dense_keys(
    data: bytes, position: int, first: int, count: int, tombstones: list[int]
) -> tuple[list[MapKey], int]:
    """Read the keys of records whose offsets follow each other, the first one being number `first` of its batch.

    Return them and where the last record ends, and add the numbers of records without value. Raise Unusual for anything
    else: other offsets, no key, a key of 64 bytes or more, a record of 8 KiB or more. Takes two thirds of the time.
    """
    keys: list[MapKey] = []
    add_key = keys.append
    try:
        for low, high in _DELTAS[first : first + count]:
            size = data[position]
            if size > 127:
                byte = data[position + 1]
                if byte > 127 or not byte:
                    raise Unusual
                at = position + 3
                position += 2 + (size + (byte << 7) - 128 >> 1)
            else:
                at = position + 2
                position += 1 + (size >> 1)
            if data[at] > 127:  # the timestamp
                at += 1
                while data[at] > 127:
                    at += 1
            if data[at + 1] != low:
                raise Unusual
            if high:
                if data[at + 2] != high:
                    raise Unusual
                at += 3
            else:
                at += 2
            key_size = data[at]
            at += 1
            value_at = at + (key_size >> 1)
            if key_size > _EXACT_SIZE_MAX:
                if key_size > 127:
                    raise Unusual
                add_key(_digest(data[at:value_at]))
            else:
                add_key(data[at:value_at])
            value_size = data[value_at]
            if value_size & 1:
                if value_size != 1:
                    raise Unusual
                tombstones.append(first + len(keys) - 1)
            if (size | key_size) & 1 or value_at >= position:
                raise Unusual
    except IndexError:
        raise Unusual from None
    if len(keys) != count:
        raise Unusual
    return keys, position


# The offsets of the records of a batch, from its first one on, as they are written: in one byte or two.
_DELTAS = [(number << 1, 0) if number < 64 else (number << 1 & 127 | 128, number >> 6) for number in range(1 << 13)]
_EXACT_SIZE_MAX = EXACT_BYTES_MAX << 1  # as a zigzag varint says it

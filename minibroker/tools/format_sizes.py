"""The same records as v0, v1 and v2: how many bytes each format takes, and what stands around the data.

    for each in format_sizes([Record(b"key", b"value")]):
        each.magic, each.size_bytes        0 34, 1 42, 2 76

What must hold: the bytes are those that a producer of that format sends, made by build_batch and counted, not computed.
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.log.build import build_batch
from minibroker.log.compression import NONE, ZSTD
from minibroker.log.formats import HEADER_BYTES, MESSAGE_BYTES_MIN
from minibroker.log.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Final

FORMATS: Final = (0, 1, 2)
FEWER_MAX: Final = 100  # records, up to which it is tried when v2 begins to be the smaller one
TRIED_BYTES_MAX: Final = 64 * 1024  # of one of them: of larger ones nobody asks for so few bytes


class FormatSize(NamedTuple):
    """Some records in one format."""

    magic: int
    data: bytes
    record_count: int
    data_bytes: int  # keys, values, names and values of headers
    codec: int

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    @property
    def around_bytes(self) -> int:
        """What is not data; below zero if compression saves more than that."""
        return self.size_bytes - self.data_bytes

    @property
    def batch_bytes(self) -> int:
        """What stands around the data once for all records; the rest comes with each."""
        if self.magic == 2:
            return HEADER_BYTES
        return MESSAGE_BYTES_MIN[self.magic] if self.codec else 0

    def to_dict(self) -> dict[str, Any]:
        """Return the sizes for JSON."""
        return {
            "format": self.magic,
            "bytes": self.size_bytes,
            "records": self.record_count,
            "data_bytes": self.data_bytes,
            "around_bytes": self.around_bytes,
        }


def format_sizes(
    records: Sequence[Record], codec: int = NONE, level: int | None = None, formats: Sequence[int] = FORMATS
) -> list[FormatSize]:
    """Return the records, counted from 0, in each format that has the codec: zstd came with v2."""
    placed = [record._replace(offset=at) for at, record in enumerate(records)]
    data_bytes = sum(data_bytes_of(record) for record in placed)
    return [
        FormatSize(magic, build_batch(magic, placed, codec=codec, level=level), len(placed), data_bytes, codec)
        for magic in formats
        if magic == 2 or codec != ZSTD
    ]


def data_bytes_of(record: Record) -> int:
    """Return how many bytes a record has that its application gave it."""
    headers = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def smaller_from(record: Record, than: int) -> int | None:
    """Return from how many of such records on v2 is smaller than another format, if it ever is."""
    if data_bytes_of(record) > TRIED_BYTES_MAX:
        return None
    for count in range(1, FEWER_MAX + 1):
        many = [record._replace(offset=at) for at in range(count)]
        if len(build_batch(2, many)) < len(build_batch(than, many)):
            return count
    return None

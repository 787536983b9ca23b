"""Codecs on one's own records: how small they make them in each format, and what that costs, on whom.

    for row in measured(records, batch_bytes=16384, settings=FEW, cpu_ms=thread_ms):
        row.codec, row.level, row.formats[2].ratio, row.pack_ms

Records are compressed as a producer does, in batches of so many bytes; a leader appends each of them by its own code.
Of v0 that means unpacking and packing again, of v1 and v2 a look (log/validate.py).
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.compression import CODEC_NAMES, GZIP, LEVELS, LZ4, NONE, SNAPPY, ZSTD
from minibroker.log.records import Record
from minibroker.tools.appended import append
from minibroker.tools.format_sizes import data_bytes_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Final

Setting = tuple[int, "int | None"]  # codec and level
BATCH_BYTES_MAX: Final = 0x7FFFFFFF  # nothing is refused here
AROUND_BYTES: Final = 7  # of a record of v2, at least, as producers count it

# Lowest, default and highest level of each; the highest ones are slow.
FEW: Final[tuple[Setting, ...]] = (
    (NONE, None),
    *((GZIP, level) for level in (1, 6, 9)),
    (SNAPPY, None),
    *((LZ4, level) for level in (1, 9, 17)),
    *((ZSTD, level) for level in (1, 3, 19)),
)
ALL: Final[tuple[Setting, ...]] = (
    (NONE, None),
    *((GZIP, level) for level in range(1, LEVELS[GZIP][1] + 1)),
    (SNAPPY, None),
    *((LZ4, level) for level in range(1, LEVELS[LZ4][1] + 1)),
    *((ZSTD, level) for level in range(1, LEVELS[ZSTD][1] + 1)),
)


class InFormat(NamedTuple):
    """All records in one format with one codec."""

    size_bytes: int
    ratio: float  # of the bytes that applications gave to those that are stored
    append_ms: float  # of CPU, of the leader


class CodecRow(NamedTuple):
    """What one codec does, at one level."""

    codec: int
    level: int | None
    pack_ms: float  # of CPU, of a producer of v2, for all records
    unpack_ms: float  # of each consumer
    formats: dict[int, InFormat]  # by magic; older formats have no zstd

    @property
    def name(self) -> str:
        return CODEC_NAMES[self.codec] + (f":{self.level}" if self.level is not None else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return {
            "codec": CODEC_NAMES[self.codec],
            "level": self.level,
            "pack_ms": round(self.pack_ms, 3),
            "unpack_ms": round(self.unpack_ms, 3),
            "formats": {
                f"v{magic}": {
                    "bytes": each.size_bytes,
                    "ratio": round(each.ratio, 4),
                    "append_ms": round(each.append_ms, 3),
                }
                for magic, each in self.formats.items()
            },
        }


def in_batches(records: Sequence[Record], batch_bytes: int) -> list[list[Record]]:
    """Cut records as a producer does that is never kept waiting: batches of so many bytes before compression."""
    found: list[list[Record]] = []
    left = 0
    for record in records:
        size = data_bytes_of(record) + AROUND_BYTES
        if size > left:
            found.append([])
            left = batch_bytes
        found[-1].append(record._replace(offset=len(found[-1])))
        left -= size
    return found


def measured(
    records: Sequence[Record],
    *,
    batch_bytes: int,
    settings: Sequence[Setting],
    cpu_ms: Callable[[], float],
    tell: Callable[[int, int], None] = lambda records, size_bytes: None,
) -> Iterator[CodecRow]:
    """Yield a row for each setting; `tell` hears of each batch how many records and bytes it had."""
    cut = in_batches(records, batch_bytes)
    data_bytes = sum(data_bytes_of(record) for record in records)
    for codec, level in settings:
        magics = (0, 1, 2) if codec != ZSTD else (2,)
        for magic in magics:  # the first time takes longer, as packages are imported
            sent = build_batch(magic, cut[0][:1], codec=codec, level=level)
            append(sent, message_format=magic, max_message_bytes=BATCH_BYTES_MAX)
        formats: dict[int, InFormat] = {}
        pack_ms = unpack_ms = 0.0
        for magic in magics:
            size_bytes, append_ms = 0, 0.0
            for batch in cut:
                begun = cpu_ms()
                sent = build_batch(magic, batch, codec=codec, level=level)
                packed = cpu_ms()
                stored = append(sent, message_format=magic, max_message_bytes=BATCH_BYTES_MAX)
                appended = cpu_ms()
                if magic == 2:
                    for found in batches(stored.data):
                        for _ in found.records():
                            pass
                    unpack_ms += cpu_ms() - appended
                    pack_ms += packed - begun
                append_ms += appended - packed
                size_bytes += len(sent)
                tell(len(batch), len(sent))
            formats[magic] = InFormat(size_bytes, data_bytes / size_bytes, append_ms)
        yield CodecRow(codec, level, pack_ms, unpack_ms, formats)

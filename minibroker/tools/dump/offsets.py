"""A lesson: for every batch of a log how its records come to their offsets, from 0.7 to today.

One table for all formats, so that they can be read side by side: where the batch lies, what is written there, what is
written with the record, and the sum that gives the offset. A sentence in front of each format says why it is so.
"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.log.batches import Batch
from minibroker.log.compression import CODEC_NAMES
from minibroker.log.formats import MessageV0, MessageV1, layout
from minibroker.log.message_sets import inner_messages
from minibroker.log.records import DECOMPRESSED_BYTES_MAX
from minibroker.tools.dump.batches import base_offset_of, file_batches
from minibroker.tools.dump.v07 import looks_like_v07, messages, within

FORMATS = {
    "0.7": "no offset is stored: it is the byte at which the message begins in the log, and jumps by 4 + size",
    "v0": "since 0.8 every message carries its offset, also within a wrapper: to assign them the broker must unpack, "
    "write every one, and compress again",
    "v1": "since 0.10 offsets within a wrapper count from 0 and the wrapper carries the last one: the broker sets "
    "that one number and need not touch what is compressed",
    "v2": "since 0.11 a batch has a header with the first offset, and a record says only how far behind it lies: one "
    "number to set, one byte a record, and compaction leaves the others as they are",
}
WIDTHS = (8, 7, 6, 26, 12, 26)
COLUMNS = ("position", "bytes", "format", "stored with the batch", "the record", "how", "offset")


def lesson(path: str, view: memoryview, file_format: str = "") -> Iterator[str]:
    """Yield the lines for a file; `file_format` "0.7" says what bytes alone may not."""
    start_offset = 0 if path.endswith(".checkpoint") else base_offset_of(path)
    old = file_format == "0.7" or (not file_format and (path.endswith(".kafka") or looks_like_v07(view)))
    rows = _rows_v07(view, start_offset) if old else rows_of(view, path)
    explained: set[str] = set()
    yield f"{path}: begins at offset {start_offset}"
    for row in rows:
        if row[2] and row[2] not in explained:
            explained.add(row[2])
            yield ""
            yield f"{row[2]}: {FORMATS[row[2]]}"
            yield _line(COLUMNS)
        yield _line(row)


def _line(row: tuple[str, ...]) -> str:
    cells = [cell.rjust(width) if width < 10 else cell.ljust(width) for cell, width in zip(row, WIDTHS)]
    return "  ".join([*cells, row[-1]]).rstrip()


def rows_of(view: memoryview, path: str) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table: of each batch one, then one for each record in it."""
    for batch in file_batches(view, path):
        codec = f", {CODEC_NAMES[batch.codec]}" if batch.codec < len(CODEC_NAMES) and batch.codec else ""
        name = f"v{min(batch.magic, 2)}"
        place = (str(batch.position), str(batch.size_bytes), name)
        if batch.magic > 1:
            yield *place, f"base offset {batch.base_offset}{codec}", "", "", ""
            for record in batch.records():
                delta = record.offset - batch.base_offset
                yield "", "", "", "", f"delta {delta}", f"{batch.base_offset} + {delta}", str(record.offset)
        elif batch.is_wrapper:
            yield *place, f"wrapper offset {batch.last_offset}{codec}", "", "", ""
            yield from _rows_within(batch)
        else:
            yield *place, f"offset {batch.last_offset}", "", "as it stands", str(batch.last_offset)


def _rows_within(batch: Batch) -> Iterator[tuple[str, ...]]:
    """Yield a row per message of a wrapper, with the offset that stands there."""
    inner = inner_messages(batch, DECOMPRESSED_BYTES_MAX, False)
    read = layout(MessageV1 if batch.magic else MessageV0).unpack_from
    stored, position = [], 0
    while position < len(inner.data):
        offset, size, *_ = read(inner.data, position)
        stored.append(offset)
        position += 12 + size
    for offset in stored:
        if inner.base_offset or batch.magic:
            how = f"{batch.last_offset} - {stored[-1]} + {offset}"
            if batch.last_offset == 0:
                how = "as it stands"  # see inner_messages: a wrapper at 0 was not set
            yield "", "", "", "", f"relative {offset}", how, str(inner.base_offset + offset)
        else:
            yield "", "", "", "", f"absolute {offset}", "as it stands", str(offset)


def _rows_v07(view: memoryview, start_offset: int) -> Iterator[tuple[str, ...]]:
    for outer in messages(view, start_offset):
        codec = f", {CODEC_NAMES[outer.codec]}" if outer.codec else ""
        size = f"size {outer.size}{codec}"
        how = f"{start_offset} + {outer.position}"
        yield str(outer.position), str(outer.size + 4), "0.7", size, "", how, str(outer.offset)
        if outer.codec:
            for number, message in enumerate(within(outer)):
                after = f"then fetch from {message.next_offset}"
                yield "", "", "", "", f"message {number}", after, str(message.offset)

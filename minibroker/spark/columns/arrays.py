"""Values and headers of records as arrays of Arrow: out of a buffer, where they lie, or out of single records.

What must hold: a value is copied once. Null, empty and not there at all stay three things.
Not here: numbers, which numpy has already (rows.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from minibroker.log.records import Record
from minibroker.spark.columns.rows import Rows, Span, read_headers
from minibroker.spark.columns.varints import BufferView, Int64s

OFFSET_MAX = (1 << 31) - 1  # of Arrow's binary

TIMESTAMP = pa.timestamp("us", tz="UTC")
MICROSECONDS_MAX = (1 << 63) - 1
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def copied(buffer: BufferView, span: Span) -> pa.BinaryArray:
    """Copy values out of the buffer, once: Arrow is shown where they lie, as an array of views, and packs that."""
    are_null = span.sizes < 0
    validity = pa.py_buffer(np.packbits(~are_null, bitorder="little")) if are_null.any() else None
    sizes = np.maximum(span.sizes, 0)
    is_large = buffer.size > OFFSET_MAX
    if is_large or sizes.sum() < PICKED_BYTES * len(sizes):
        return _picked(buffer, span.begins, sizes, validity, is_large)
    # A view is 16 bytes: the size; four bytes that only comparisons ask for; which buffer, 0; and where in it.
    views = np.empty((len(span), 2), np.int64)
    views[:, 0] = sizes
    np.left_shift(span.begins, 32, out=views[:, 1])
    is_short = sizes <= VIEW_BYTES
    if is_short.any():
        # These lie in the view itself, behind the size; what is behind them there is not looked at.
        short = slice(None) if is_short.all() else np.flatnonzero(is_short)
        at = span.begins[short]
        views[short, 0] |= buffer.words_at(at) << 32
        views[short, 1] = buffer.words_at(at + 4)
    buffers = [validity, pa.py_buffer(views), pa.py_buffer(buffer.memory)]
    return pa.Array.from_buffers(pa.binary_view(), len(span), buffers).cast(pa.binary())


VIEW_BYTES = 12  # of a value that fits into its view
PICKED_BYTES = 32  # values that are shorter, in the mean, are picked in less time than views of them take


def _picked(
    buffer: BufferView, begins: Int64s, sizes: Int64s, validity: pa.Buffer | None, is_large: bool
) -> pa.BinaryArray:
    """Do so in another way: Arrow is shown the buffer as values and what lies between, and takes every other one."""
    offsets = np.empty(2 * len(begins), np.int64 if is_large else np.int32)
    offsets[0::2] = begins
    offsets[1::2] = begins + sizes
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(buffer.memory)]
    type = pa.large_binary() if is_large else pa.binary()
    between = pa.Array.from_buffers(type, max(0, len(offsets) - 1), buffers)
    values = between.take(pa.array(np.arange(0, len(offsets), 2)))
    if is_large:
        values = values.cast(pa.binary())
    if validity is None:
        return values
    return pa.Array.from_buffers(pa.binary(), len(begins), [validity, *values.buffers()[1:]])


def copied_headers(buffer: BufferView, rows: Rows) -> pa.ListArray:
    headers = read_headers(buffer, rows)
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(headers.counts, out=offsets[1:])
    keys = copied(buffer, headers.keys)
    try:
        names = keys.cast(pa.string())
    except pa.ArrowInvalid:
        # Broken UTF-8 becomes U+FFFD and is no error, as in single records.
        names = pa.array([str(key, "utf-8", "replace") for key in keys.to_pylist()], pa.string())
    pairs = pa.StructArray.from_arrays([names, copied(buffer, headers.values)], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=HEADERS)


def microseconds(ms: Int64s) -> pa.Array:
    """Return times; not a number of ms fits into the number of microseconds."""
    return pa.array(np.clip(ms, -(MICROSECONDS_MAX // 1000), MICROSECONDS_MAX // 1000) * 1000).view(TIMESTAMP)


def wrapped(numbers: Iterable[int]) -> Int64s:
    """Return numbers as 64 bits hold them; sums of what a batch says may be larger."""
    return np.array([number & 0xFFFFFFFFFFFFFFFF for number in numbers], np.uint64).view(np.int64)


def headers_of(records: list[Record]) -> pa.ListArray:
    """Return the headers of single records."""
    lists = [[{"key": key, "value": value} for key, value in record.headers] for record in records]
    return pa.array(lists, HEADERS)


# Rows


def by_value(rows: pa.RecordBatch, column: str) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Yield the values of a column, which has no null, and the rows of each in their order.

    They are copied once, whatever many values there are, and of those that somebody keeps no others stay in memory.
    """
    values = rows[column].unique().to_pylist()
    if len(values) <= 1:
        yield from ((value, rows) for value in values)
        return
    encoded = rows[column].dictionary_encode()  # in the same order
    codes = np.asarray(encoded.indices)
    narrow = codes.astype(np.uint16) if len(values) <= 1 << 16 else codes
    order = np.argsort(narrow, kind="stable")  # of 16 bits in one pass
    begin = 0
    for value, end in zip(values, np.cumsum(np.bincount(codes)).tolist(), strict=True):
        yield value, rows.take(pa.array(order[begin:end]))
        begin = end

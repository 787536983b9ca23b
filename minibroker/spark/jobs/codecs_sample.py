"""A sample of topics: records that follow each other, from a few places of each.

Neighbours matter: what a codec makes of a batch depends on how much its records have in common. So a sample is a few
long runs, each from one partition, and batches are built within a run.
Not here: measuring (codecs_measuring.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from minibroker.spark.jobs.profile_sizes import sizes_of
from minibroker.spark.options import Options
from minibroker.spark.reading import reader_of

RUNS_MAX = 4  # of a topic
COLUMNS = ["key", "value", "timestamp", "headers"]


class Piece:
    """Where a run begins, and how long it is to be."""

    __slots__ = ("options", "size_bytes", "task")

    def __init__(self, task: Any, options: Options, size_bytes: int):
        self.task = task
        self.options = options
        self.size_bytes = size_bytes


def pieces_of(tasks: Sequence[Any], options: Options, size_bytes: int) -> list[Piece]:
    """Return what to read of a topic: its tasks are those of the data source, for the options with headers."""
    count = min(RUNS_MAX, len(tasks))
    chosen = [tasks[len(tasks) * number // count] for number in range(count)]
    return [Piece(task, options, -(-size_bytes // count)) for task in chosen]


def read_piece(piece: Piece) -> bytes:
    """Return the run as an Arrow stream."""
    found: list[pa.RecordBatch] = []
    left = piece.size_bytes
    batches = reader_of(piece.task, piece.options).batches()
    try:
        for batch in batches:
            part = batch.select(COLUMNS)
            sizes = np.cumsum(sum(np.maximum(sizes_of(part.column(name)), 0) for name in ("key", "value")))
            count = int(np.searchsorted(sizes, left)) + 1
            found.append(part.slice(0, count))
            left -= int(sizes[min(count, len(sizes)) - 1])
            if left <= 0:
                break
    finally:
        batches.close()
    sink = pa.BufferOutputStream()
    if found:
        with pa.ipc.new_stream(sink, found[0].schema) as stream:
            for part in found:
                stream.write_batch(part)
    return bytes(sink.getvalue())


def rows_in(run: bytes) -> pa.Table:
    """Return the records of a run that is not empty."""
    return pa.ipc.open_stream(run).read_all().combine_chunks()

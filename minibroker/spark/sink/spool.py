"""Spool: rows of tasks on their way to the driver, which alone writes a transaction.

The rows of a task are an Arrow stream: in its commit message, so that Spark itself brings them, or, where there are
many, in a file of a folder that the task and the driver both reach.
What must hold: of the attempts of a task the driver gets one message; what the others have spooled is never read.
Not here: which rows these are (sink.py), writing them (sender.py), whether a checkpoint serves as the folder
(checkpoint.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from minibroker.spark.sink.checkpoint import Checkpoint
from minibroker.spark.sink.columns import COLUMNS
from minibroker.spark.sink.options import WriteOptions

if TYPE_CHECKING:
    from minibroker.spark.folders import Folder

MESSAGE_BYTES_MAX = 256 * 1024  # of rows in a commit message, where there is a folder; Spark bounds their sum
FOLDER = "minibroker-spool"
COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


class SpooledRows(NamedTuple):
    """Rows of one task."""

    size_bytes: int = 0  # about what they take in memory
    data: bytes = b""
    path: str = ""  # in the folder, if they are in a file


class Spool:
    """The folder of one query; picklable."""

    def __init__(self, options: WriteOptions, transactional_id: str, checkpoint: Checkpoint):
        self.transactional_id = transactional_id
        self.checkpoint = checkpoint
        self._location = options.spool_location

    def put(self, batches: Iterator[pa.RecordBatch], name: str) -> SpooledRows:
        """Spool what an attempt of a task has; no other attempt has its name."""
        parts = (batch.select([each for each in batch.schema.names if each in COLUMNS]) for batch in batches)
        first: list[pa.RecordBatch] = []
        size_bytes = 0
        while size_bytes <= MESSAGE_BYTES_MAX and (part := next(parts, None)) is not None:
            first.append(part)
            size_bytes += part.nbytes
        if not first:
            return SpooledRows()
        found = self._folder() if size_bytes > MESSAGE_BYTES_MAX else None
        if found is None:
            file, path = pa.BufferOutputStream(), ""
        else:
            found.files.create_dir(found.path(), recursive=True)
            path = found.path(f"{name}.arrow")
            file = found.files.open_output_stream(path)
        with file, pa.ipc.new_stream(file, first[0].schema, options=COMPRESSED) as writer:
            for batch in first:
                writer.write_batch(batch)
            for batch in parts:
                writer.write_batch(batch)
                size_bytes += batch.nbytes
        return SpooledRows(size_bytes, b"" if path else file.getvalue().to_pybytes(), path)

    def rows(self, spooled: list[SpooledRows]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of tasks, one task after another."""
        found = self._folder() if any(each.path for each in spooled) else None
        for each in spooled:
            if not each.size_bytes:
                continue
            source = pa.BufferReader(each.data)
            if each.path:
                assert found, f"{self._location or self.checkpoint.location} was a folder when a task wrote to it"
                source = found.files.open_input_stream(each.path)
            with source, pa.ipc.open_stream(source) as reader:
                yield from reader

    def clear(self) -> None:
        """Forget all that is there of this query and those of its runs that were killed."""
        if found := self._folder():
            with suppress(OSError):  # another attempt of a task may be writing; the next batch clears again
                found.files.delete_dir(found.path())

    def _folder(self) -> Folder | None:
        """Return where files can be, if they can."""
        location = self._location or (self.checkpoint.location if self.checkpoint.is_ours() else "")
        if not location:
            return None
        from minibroker.spark.folders import Folder  # takes 20 ms, and most batches are small

        return Folder(f"{location.rstrip('/')}/{FOLDER}/{self.transactional_id}")

"""Declarations of the small files beside a segment, and of the text files of a log directory.

.index       offset index: entries of 8 bytes
.timeindex   time index: entries of 12 bytes
.txnindex    aborted transactions: version int16 and `AbortedTxn`, 34 bytes each
.snapshot    producer state: version int16 and `ProducerSnapshot`
*-checkpoint text: version 0, how many lines follow, the lines; what a line holds depends on the file

The two indexes of an active segment are preallocated: behind the last entry they are zero.
Not here: looking things up in an index, or deciding whether one can be trusted.
"""

from __future__ import annotations

from minibroker.schema.message import Struct
from minibroker.schema.types import Int32, Int64


class OffsetIndexEntry(Struct):
    """Where a batch lies that holds an offset. Sparse: one entry per index.interval.bytes of log."""

    relative_offset: Int32  # LAST offset of the batch minus the base offset in the file's name
    position: Int32  # byte of the .log file at which the batch starts


class TimeIndexEntry(Struct):
    """The largest timestamp up to an offset."""

    timestamp: Int64  # ms since 1970, larger than in the entry before
    relative_offset: Int32  # of the record with this timestamp, minus the base offset in the file's name


# Columns of the lines behind version and count. The rest of the files in a log directory are properties or JSON.
CHECKPOINT_COLUMNS = {
    "leader-epoch-checkpoint": ("epoch", "start_offset"),
    "recovery-point-offset-checkpoint": ("topic", "partition", "offset"),
    "replication-offset-checkpoint": ("topic", "partition", "offset"),
    "log-start-offset-checkpoint": ("topic", "partition", "offset"),
    "cleaner-offset-checkpoint": ("topic", "partition", "offset"),
}
COLUMN_COMMENTS = {
    "epoch": "number of a leader's reign over the partition",
    "start_offset": "first offset that this leader wrote",
    "offset": "recovery point: flushed up to here; replication: high watermark; log start; cleaner: first dirty offset",
}

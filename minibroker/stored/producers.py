"""Side files of a partition about producers: the .snapshot files and the entries of .txnindex.

The log writes them next to its segments and reads them at start. The snapshot and each entry begin with an int16
version. Both can be computed from the log again; they save reading all of it.
"""

from __future__ import annotations

from minibroker.schema.message import Message, Struct
from minibroker.schema.types import Array, Int16, Int32, Int64, UInt32


class ProducerSnapshot(Message, versions="1"):
    """Everything known of idempotent and transactional producers at the offset in the file's name.

    Written when a segment is rolled and at a clean stop; at start the newest one is loaded and the rest of the log
    scanned.
    """

    crc: UInt32  # CRC-32C of all that follows it; a file that does not match is dropped and an older one used
    producer_entries: Array[ProducerEntry]

    class ProducerEntry(Struct):
        producer_id: Int64
        epoch: Int16
        last_sequence: Int32  # of its last batch; -1: no data, only a marker
        last_offset: Int64  # offset of the last record of its last batch; -1: no data
        offset_delta: Int32  # records in its last batch minus one: gives that batch's first sequence and offset
        timestamp: Int64  # largest timestamp of its last batch, ms since 1970
        coordinator_epoch: Int32  # of the last marker: an older coordinator is refused; -1: none yet
        # where its open transaction begins, which holds back the last stable offset; -1: none open
        current_txn_first_offset: Int64


class AbortedTxn(Message, versions="0"):
    """One entry of .txnindex: a transaction that was aborted and ended in this segment.

    Fetch with read_committed looks them up to tell the consumer which records to drop. With the version 34 bytes.
    """

    producer_id: Int64
    first_offset: Int64  # first record of the transaction
    last_offset: Int64  # offset of the abort marker
    last_stable_offset: Int64  # at the time of the abort: who reads only below it need not look at later entries

"""Transactions: records of __transaction_state.

The transaction coordinator writes one at each step of a transaction, before it acts on it, and reads all back when it
becomes leader of the partition: an unfinished commit or abort is then carried on. The topic is compacted, not
compressed; a key without a value deletes an expired transactional id. The partition is a hash of the id.
"""

from __future__ import annotations

from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int8, Int16, Int32, Int64, String, since
from minibroker.stored.kinds import CoordinatorKey, CoordinatorValue


class TransactionLogKey(CoordinatorKey, type=0, versions="0"):
    """Names a transactional id."""

    transactional_id: String


class TransactionLogValue(CoordinatorValue, type=0, versions="0-1", flexible="1+"):
    """How a transactional id and its transaction stand.

    v1: flexible, written since transaction.version 1; the tagged fields belong to KIP-890 and KIP-939.
    """

    producer_id: Int64  # in use by this transactional id
    # of the last finished transaction, to recognise a retry when the id has changed; -1: none
    previous_producer_id: Int64 = since("1+", default=-1, tag=0)
    # to go on with when the transaction ends, if epochs of the present one ran out; -1: none
    next_producer_id: Int64 = since("1+", default=-1, tag=1)
    # raised to fence older producers of the same transactional id; near 32767 a new producer id is taken
    producer_epoch: Int16
    # goes with next_producer_id while a prepared transaction is kept (KIP-939); -1: none
    next_producer_epoch: Int16 = since("1+", default=-1, tag=3)
    transaction_timeout_ms: Int32  # the coordinator aborts a transaction that is open longer
    # 0: empty, 1: ongoing, 2: prepare commit, 3: prepare abort, 4: complete commit, 5: complete abort, 6: dead,
    # 7: prepare epoch fence. From 2 and 3 on the outcome is certain.
    transaction_status: Int8
    # where markers must be written; null: no transaction (state 0)
    transaction_partitions: Array[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64  # ms since 1970; an unused transactional id expires by it
    transaction_start_timestamp_ms: Int64  # when the first partition was added, ms since 1970; -1: no transaction
    # transaction.version the producer works by; 2: the epoch rises with every transaction
    client_transaction_version: Int16 = since("1+", default=0, tag=2)

    class PartitionsSchema(Struct):
        topic: String
        partition_ids: Array[Int32]

"""Shows the state of transactions by their transactional id (KIP-664).

Sent by admin clients to the transaction coordinator of the ids.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, Int64, String


class DescribeTransactionsRequest(Request, api=65, versions="0", flexible="0+"):
    """Ask what the coordinator knows of these transactional ids."""

    transactional_ids: Array[String]


class DescribeTransactionsResponse(Response, api=65, versions="0", flexible="0+"):
    """State, producer and partitions of each transaction."""

    throttle_time_ms: Int32  # milliseconds a quota makes the client wait; 0: none
    transaction_states: Array[TransactionState]

    class TransactionState(Struct):
        error_code: Int16  # 16: other coordinator, 105: no such transactional id
        transactional_id: String
        # Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, PrepareEpochFence or Dead
        transaction_state: String
        transaction_timeout_ms: Int32  # the coordinator aborts a transaction that stays open longer
        transaction_start_time_ms: Int64  # ms since 1970; -1: none has started
        producer_id: Int64  # the producer that holds the transactional id at present
        producer_epoch: Int16  # rises whenever a new instance takes over the transactional id
        topics: Array[TopicData]  # partitions that are part of the open transaction

        class TopicData(Struct):
            topic: String
            partitions: Array[Int32]  # partition indexes

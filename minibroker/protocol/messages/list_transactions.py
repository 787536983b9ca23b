"""List the transactions one coordinator knows (KIP-664). Admin tools send it to every broker and join the answers.

v1: filter by age (KIP-994), v2: filter by name (KIP-1152).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, Int64, String, since


class ListTransactionsRequest(Request, api=66, versions="0-2", flexible="0+"):
    """Give filters; a transaction must pass all of them."""

    state_filters: Array[String]  # names as in transaction_state; empty: any
    producer_id_filters: Array[Int64]  # empty: any
    duration_filter: Int64 = since("1+", default=-1)  # milliseconds; only those that have run for longer. Negative: any
    # regular expression (RE2) for the transactional id; null or empty: any
    transactional_id_pattern: String | None = since("2+", default=None)


class ListTransactionsResponse(Response, api=66, versions="0-2", flexible="0+"):
    """List the transactions that passed."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16  # 14: the coordinator is still loading
    unknown_state_filters: Array[String]  # states in the request that the broker has never heard of
    transaction_states: Array[TransactionState]

    class TransactionState(Struct):
        transactional_id: String
        producer_id: Int64
        # Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, Dead, PrepareEpochFence
        transaction_state: String

"""AddOffsetsToTxn: make a consumer group's offsets part of a transaction (KIP-98).

A transactional producer sends it to the transaction coordinator before its first TxnOffsetCommit for the group;
the coordinator then knows that the group's partition of __consumer_offsets needs a marker at the end.
Producers with transaction version 2 skip it: there TxnOffsetCommit v5+ adds the partition itself (KIP-890).
v2: may answer PRODUCER_FENCED, v3: flexible, v4: may answer TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.types import Int16, Int32, Int64, String


class AddOffsetsToTxnRequest(Request, api=25, versions="0-4", flexible="3+"):
    """Announce that the open transaction will commit offsets for one group."""

    transactional_id: String  # also decides which broker is the coordinator: hash of the id over __transaction_state
    producer_id: Int64  # from InitProducerId; another id than the coordinator's gives INVALID_PRODUCER_ID_MAPPING
    producer_epoch: Int16  # an older one than the coordinator's means a newer producer has taken over: fenced
    group_id: String  # group whose offsets will be committed, not a group the producer is in


class AddOffsetsToTxnResponse(Response, api=25, versions="0-4", flexible="3+"):
    """Say whether the group's offsets partition is now part of the transaction."""

    throttle_time_ms: Int32  # how long a quota makes the client wait before its next request; 0: not at all
    error_code: Int16  # CONCURRENT_TRANSACTIONS (51): the previous transaction is still being completed, try again

"""Ends a transaction: commit or abort.

Sent by a transactional producer to its transaction coordinator. The answer comes as soon as the decision is on record;
the markers that make it visible in each partition follow later.
v2: a fenced producer gets PRODUCER_FENCED (90). v3: flexible. v5: each end raises the producer's epoch, so that late
writes cannot slip into the next transaction (KIP-890).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.types import Bool, Int16, Int32, Int64, String, since


class EndTxnRequest(Request, api=26, versions="0-5", flexible="3+"):
    """Commit or abort the open transaction of a producer."""

    transactional_id: String  # the name the application gave its producer (transactional.id)
    producer_id: Int64  # as handed out by InitProducerId or, from v5 on, by the last EndTxn
    producer_epoch: Int16  # an older epoch than the coordinator's means that a newer instance took over
    committed: Bool  # true: commit, false: abort


class EndTxnResponse(Response, api=26, versions="0-5", flexible="3+"):
    """Whether the decision is on record, and how the producer goes on."""

    throttle_time_ms: Int32  # milliseconds a quota makes the client wait; 0: none
    error_code: Int16  # 51: the last end is still under way, retry; 48: not possible in this state; 47 and 90: fenced
    # for the next transaction; a new one when the epochs of the old one are used up; -1: error
    producer_id: Int64 = since("5+", default=-1)
    producer_epoch: Int16 = since("5+", default=-1)  # for the next transaction, larger by one as a rule; -1: error

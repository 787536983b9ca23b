"""Get a producer id, the base of idempotence and transactions (KIP-98).

An idempotent producer asks any broker, a transactional one its coordinator, which thereby ends what an older instance
with the same transactional id had begun. v3: resume with a known id (KIP-360), v4: error 90 for fenced producers
(KIP-588), v5: may answer 120 (KIP-890), v6: two-phase commit (KIP-939), not released.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.types import Bool, Int16, Int32, Int64, String, since


class InitProducerIdRequest(Request, api=22, versions="0-6", flexible="2+", unstable="6", never_stable="6"):
    """Ask for a producer id and epoch."""

    transactional_id: String | None  # null: only idempotent, every call gives a new id
    # a transaction open for longer is aborted; above transaction.max.timeout.ms: error 50
    transaction_timeout_ms: Int32
    producer_id: Int64 = since("3+", default=-1)  # the id the producer has and wants a new epoch for; -1: none
    # the epoch that goes with producer_id; -1: none. Others than the coordinator's get error 90 (v3: 47)
    producer_epoch: Int16 = since("3+", default=-1)
    # true: the coordinator never times out the transaction, an outside system decides on it
    enable2_pc: Bool = since("6+", default=False)
    # true: leave an open transaction as it is, for the caller to commit or abort
    keep_prepared_txn: Bool = since("6+", default=False)


class InitProducerIdResponse(Response, api=22, versions="0-6", flexible="2+"):
    """Hand out the producer id and its epoch."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    # 51: an old transaction is being finished, ask again; 16: ask the coordinator; 14: it is still loading
    error_code: Int16
    producer_id: Int64 = -1  # goes into every batch; -1 with an error
    producer_epoch: Int16  # goes into every batch; brokers refuse batches of an older epoch
    ongoing_txn_producer_id: Int64 = since("6+", default=-1)  # id under which the transaction kept open runs; -1: none
    # epoch under which the transaction kept open runs; -1: none
    ongoing_txn_producer_epoch: Int16 = since("6+", default=-1)

"""Errors of transactions by version: what a client is told that does not know the error of today.

    told           of a request to the coordinator, or to the coordinator of the group
    append_error   of a batch whose transaction its coordinator has been asked about (KIP-890)

Clients of old either crash at an error that they do not know, or do not ask again where they should.
"""

from __future__ import annotations

from minibroker.errors import Error

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 0, 22, 24, 25, 26, 28

_FENCED = Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH
# API -> version from which on an error is known, the error, what is told before.
OLDER: dict[int, tuple[tuple[int, tuple[Error, Error]], ...]] = {
    INIT_PRODUCER_ID: ((4, _FENCED),),
    ADD_PARTITIONS: ((2, _FENCED),),
    ADD_OFFSETS: ((2, _FENCED),),
    END_TXN: ((2, _FENCED),),
    TXN_OFFSET_COMMIT: (
        (2, (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE)),  # KAFKA-7296
        (6, (Error.STALE_MEMBER_EPOCH, Error.ILLEGAL_GENERATION)),
        (6, (Error.GROUP_ID_NOT_FOUND, Error.ILLEGAL_GENERATION)),
    ),
}
# API -> versions from which on a client can abort a transaction that is not its own fault, and from which on the leader
# of a partition adds it to the transaction (transactions v2).
ABORTABLE_SINCE = {PRODUCE: 11, TXN_OFFSET_COMMIT: 4}
ADDS_SINCE = {PRODUCE: 12, TXN_OFFSET_COMMIT: 5}

_ASK_AGAIN = (
    Error.NETWORK_EXCEPTION,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
)


def told(api: int, version: int, error: Error) -> Error:
    """Return what a client of a version is told instead of an error."""
    for since, (new, old) in OLDER[api]:
        if version < since and error is new:
            return old
    return error


def adds_partitions(api: int, version: int) -> bool:
    """Whether the leader adds the partition, so that the client need not (KIP-890, part 2)."""
    return version >= ADDS_SINCE[api]


def append_error(api: int, version: int, error: Error) -> Error:
    """Return what a client is told if the coordinator refuses a batch, or cannot be asked.

    NOT_ENOUGH_REPLICAS has every client send the batch again, and none look for another leader.
    """
    if error is Error.PRODUCER_FENCED:
        error = Error.INVALID_PRODUCER_EPOCH
    elif error is Error.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE[api]:
        error = Error.INVALID_TXN_STATE
    if api == TXN_OFFSET_COMMIT:
        return told(api, version, Error.COORDINATOR_LOAD_IN_PROGRESS if error is Error.NETWORK_EXCEPTION else error)
    if error in _ASK_AGAIN or (error is Error.CONCURRENT_TRANSACTIONS and not adds_partitions(api, version)):
        return Error.NOT_ENOUGH_REPLICAS
    return error

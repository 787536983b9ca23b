"""States of a transaction, as data: which event leads from one to another, and what each request meets in each.

The picture in docs/transactions.md is drawn from these tables.

    Empty -- ADD --> Ongoing -- COMMIT --> PrepareCommit -- COMPLETE --> CompleteCommit -- ADD --> Ongoing ...
                             -- ABORT --> PrepareAbort -- COMPLETE --> CompleteAbort

From Prepare on the outcome is certain: nothing leads out of it but COMPLETE. In transactions v2 (KIP-890) a client that
does not know whether its transaction has begun may abort it in every other state; each end raises the producer epoch.
Not here: which producer may ask, and what becomes of its id and epoch (shard.py, metadata.py).
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.errors import Error


class State(NamedTuple):
    """One state; number and name are Kafka's, in records and answers."""

    number: int
    name: str
    what: str

    def __repr__(self) -> str:
        return self.name


EMPTY = State(0, "Empty", "a producer has its id and epoch, and has begun nothing")
ONGOING = State(1, "Ongoing", "partitions have been added")
PREPARE_COMMIT = State(2, "PrepareCommit", "it is committed; markers are under way to its partitions")
PREPARE_ABORT = State(3, "PrepareAbort", "it is aborted; markers are under way to its partitions")
COMPLETE_COMMIT = State(4, "CompleteCommit", "it was committed, and every partition has its marker")
COMPLETE_ABORT = State(5, "CompleteAbort", "it was aborted, and every partition has its marker")
DEAD = State(6, "Dead", "the id has expired, and is about to be forgotten; never stored")
PREPARE_EPOCH_FENCE = State(7, "PrepareEpochFence", "the epoch of its producer is about to be raised; never stored")
STATES = (
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
    PREPARE_ABORT,
    COMPLETE_COMMIT,
    COMPLETE_ABORT,
    DEAD,
    PREPARE_EPOCH_FENCE,
)
STORED = STATES[:6]  # those that a record may have: the columns of REQUESTS
BY_NAME = {state.name: state for state in STATES}

BEGIN = "a producer gets its id and epoch"
ADD = "partitions are added"
COMMIT = "it is to be committed"
ABORT = "it is to be aborted"
COMPLETE = "every partition has its marker"
EXPIRE = "the id was not used for long"
EVENTS = {  # from which state to which one; in any other state the event is an error of ours
    BEGIN: {EMPTY: EMPTY, COMPLETE_COMMIT: EMPTY, COMPLETE_ABORT: EMPTY},
    ADD: {EMPTY: ONGOING, ONGOING: ONGOING, COMPLETE_COMMIT: ONGOING, COMPLETE_ABORT: ONGOING},
    COMMIT: {ONGOING: PREPARE_COMMIT},
    ABORT: {
        ONGOING: PREPARE_ABORT,
        EMPTY: PREPARE_ABORT,
        COMPLETE_COMMIT: PREPARE_ABORT,
        COMPLETE_ABORT: PREPARE_ABORT,
    },
    COMPLETE: {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT},
    EXPIRE: {EMPTY: DEAD, COMPLETE_COMMIT: DEAD, COMPLETE_ABORT: DEAD},
}

# What a request of the right producer meets: an event that it brings about, or an error; NONE: there is nothing to do.
FENCE = "its producer is fenced, and its transaction aborted"  # not an event: ABORT by the coordinator itself
CHECK = "each partition is looked for in it"  # not an event either: TRANSACTION_ABORTABLE for those that it has not
Outcome = Error | str

INIT_PRODUCER_ID = "InitProducerId"
ADD_PARTITIONS = "AddPartitionsToTxn"
VERIFY_PARTITIONS = "AddPartitionsToTxn, verify only"
COMMIT_CLASSIC, ABORT_CLASSIC = "EndTxn v0-4, commit", "EndTxn v0-4, abort"
COMMIT_V2, ABORT_V2 = "EndTxn v5, commit", "EndTxn v5, abort"
# The same with the epoch before: the answer to it was lost.
COMMIT_V2_AGAIN, ABORT_V2_AGAIN = "EndTxn v5, commit again", "EndTxn v5, abort again"

DONE, BUSY = Error.NONE, Error.CONCURRENT_TRANSACTIONS
WRONG, FENCED = Error.INVALID_TXN_STATE, Error.PRODUCER_FENCED


def _row(empty: Outcome, ongoing: Outcome, committed: Outcome, aborted: Outcome) -> dict[State, Outcome]:
    # From the decision to the last marker a completion is pending, and whoever wants something else comes again.
    return dict(zip(STORED, (empty, ongoing, BUSY, BUSY, committed, aborted), strict=True))


REQUESTS: dict[str, dict[State, Outcome]] = {
    # Empty, Ongoing, CompleteCommit, CompleteAbort
    INIT_PRODUCER_ID: _row(BEGIN, FENCE, BEGIN, BEGIN),
    ADD_PARTITIONS: _row(ADD, ADD, ADD, ADD),
    VERIFY_PARTITIONS: _row(CHECK, CHECK, CHECK, CHECK),
    COMMIT_CLASSIC: _row(WRONG, COMMIT, DONE, WRONG),
    ABORT_CLASSIC: _row(WRONG, ABORT, WRONG, DONE),
    COMMIT_V2: _row(WRONG, COMMIT, WRONG, WRONG),
    ABORT_V2: _row(ABORT, ABORT, ABORT, ABORT),
    COMMIT_V2_AGAIN: _row(FENCED, FENCED, DONE, WRONG),
    ABORT_V2_AGAIN: _row(FENCED, FENCED, WRONG, DONE),
}

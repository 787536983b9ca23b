"""What clients are told who do not know the errors of today."""

from __future__ import annotations

import pytest

from minibroker.errors import Error
from minibroker.transactions.old_versions import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    adds_partitions,
    append_error,
    told,
)

FENCED, OLD_FENCED = Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("api", "last", "since"),
    [(INIT_PRODUCER_ID, 5, 4), (ADD_PARTITIONS, 5, 2), (ADD_OFFSETS, 4, 2), (END_TXN, 5, 2)],
)
def test_a_fenced_producer_is_told_what_its_version_knows(api: int, last: int, since: int) -> None:
    for version in range(last + 1):
        assert told(api, version, FENCED) is (OLD_FENCED if version < since else FENCED)
        assert told(api, version, Error.CONCURRENT_TRANSACTIONS) is Error.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(
    ("error", "since", "before"),
    [
        (Error.COORDINATOR_LOAD_IN_PROGRESS, 2, Error.COORDINATOR_NOT_AVAILABLE),
        (Error.STALE_MEMBER_EPOCH, 6, Error.ILLEGAL_GENERATION),
        (Error.GROUP_ID_NOT_FOUND, 6, Error.ILLEGAL_GENERATION),
        (Error.UNKNOWN_MEMBER_ID, 0, Error.NONE),
    ],
)
def test_errors_of_offsets_in_a_transaction_by_version(error: Error, since: int, before: Error) -> None:
    for version in range(7):
        assert told(TXN_OFFSET_COMMIT, version, error) is (before if version < since else error)


def test_from_which_version_on_the_leader_adds_the_partition() -> None:
    assert [version for version in range(14) if adds_partitions(PRODUCE, version)] == [12, 13]
    assert [version for version in range(7) if adds_partitions(TXN_OFFSET_COMMIT, version)] == [5, 6]


# Of Produce: what the coordinator says, what is told up to v10, with v11, from v12 on.
LATER = Error.NOT_ENOUGH_REPLICAS
PRODUCED = [
    (FENCED, OLD_FENCED, OLD_FENCED, OLD_FENCED),
    (Error.TRANSACTION_ABORTABLE, Error.INVALID_TXN_STATE, Error.TRANSACTION_ABORTABLE, Error.TRANSACTION_ABORTABLE),
    (Error.INVALID_TXN_STATE, *[Error.INVALID_TXN_STATE] * 3),
    (Error.INVALID_PRODUCER_ID_MAPPING, *[Error.INVALID_PRODUCER_ID_MAPPING] * 3),
    (Error.NETWORK_EXCEPTION, LATER, LATER, LATER),
    (Error.COORDINATOR_LOAD_IN_PROGRESS, LATER, LATER, LATER),
    (Error.COORDINATOR_NOT_AVAILABLE, LATER, LATER, LATER),
    (Error.NOT_COORDINATOR, LATER, LATER, LATER),
    (Error.CONCURRENT_TRANSACTIONS, LATER, LATER, Error.CONCURRENT_TRANSACTIONS),
]


@pytest.mark.parametrize("row", PRODUCED, ids=lambda row: row[0].name)
def test_a_batch_that_is_not_verified_is_refused_as_its_version_knows_it(
    row: tuple[Error, Error, Error, Error],
) -> None:
    error, default, abortable, adding = row
    for version in range(3, 14):
        expected = default if version < 11 else abortable if version == 11 else adding
        assert append_error(PRODUCE, version, error) is expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Error.NETWORK_EXCEPTION, [Error.COORDINATOR_NOT_AVAILABLE] * 2 + [Error.COORDINATOR_LOAD_IN_PROGRESS] * 5),
        (Error.TRANSACTION_ABORTABLE, [Error.INVALID_TXN_STATE] * 4 + [Error.TRANSACTION_ABORTABLE] * 3),
        (FENCED, [OLD_FENCED] * 7),
        (Error.CONCURRENT_TRANSACTIONS, [Error.CONCURRENT_TRANSACTIONS] * 7),
    ],
)
def test_an_offset_that_is_not_verified_is_refused_as_its_version_knows_it(error: Error, expected: list[Error]) -> None:
    assert [append_error(TXN_OFFSET_COMMIT, version, error) for version in range(7)] == expected

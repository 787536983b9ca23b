"""A leader asks the coordinator: how often, and what it takes from an answer that does not come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minibroker.errors import Error
from minibroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from minibroker.replication.network import NetworkError
from minibroker.transactions.metadata import ProducerIdAndEpoch
from tests.broker.handlers.transactional import Transactional
from tests.broker.virtual_broker import VirtualBroker, virtual_broker

pytestmark = pytest.mark.outside

PLACE = ("orders", 0)
PRODUCER = ProducerIdAndEpoch(7, 3)
Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult


class Coordinator:
    """Answers what it is given, the last of it for ever; an exception is raised."""

    def __init__(self, *answers: Error | Exception):
        self.answers = list(answers)
        self.asked: list[bool] = []  # whether only to verify

    def call(self, broker_id: int, request: Any, version: int) -> AddPartitionsToTxnResponse:
        (transaction,) = request.transactions
        self.asked.append(transaction.verify_only)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        row = AddPartitionsToTxnTopicResult.AddPartitionsToTxnPartitionResult(
            partition_index=0, partition_error_code=answer
        )
        topic = AddPartitionsToTxnTopicResult(name="orders", results_by_partition=[row])
        return AddPartitionsToTxnResponse(
            throttle_time_ms=0,
            results_by_transaction=[Result(transactional_id=transaction.transactional_id, topic_results=[topic])],
        )


@pytest.fixture
def broker() -> Iterator[VirtualBroker]:
    with virtual_broker({"transaction.state.log.num.partitions": 1}) as broker:
        yield broker


def verified(broker: VirtualBroker, coordinator: Coordinator, *, adds: bool) -> Error:
    Transactional(broker, "t").begin()
    verifier = broker.node.transactions.verifier
    verifier._calls = coordinator  # type: ignore[assignment]
    asked = verifier.verify("t", PRODUCER, [PLACE], adds=adds)
    return broker.wait(broker.loop.create_task(asked))[PLACE]  # type: ignore[no-any-return]


@pytest.mark.parametrize("adds", [False, True])
def test_a_coordinator_that_cannot_be_reached_is_said_as_it_is(adds: bool, broker: VirtualBroker) -> None:
    coordinator = Coordinator(NetworkError("gone"))
    assert verified(broker, coordinator, adds=adds) is Error.NETWORK_EXCEPTION
    assert coordinator.asked == [not adds]


def test_who_adds_waits_for_the_transaction_before(broker: VirtualBroker) -> None:
    coordinator = Coordinator(Error.CONCURRENT_TRANSACTIONS, Error.CONCURRENT_TRANSACTIONS, Error.NONE)
    begun_ms = broker.now_ms()
    assert verified(broker, coordinator, adds=True) is Error.NONE
    assert coordinator.asked == [False] * 3
    backoff_ms = broker.node.config["add.partitions.to.txn.retry.backoff.ms"]
    assert broker.now_ms() - begun_ms >= 2 * backoff_ms


def test_who_adds_does_not_wait_for_ever(broker: VirtualBroker) -> None:
    coordinator = Coordinator(Error.CONCURRENT_TRANSACTIONS)
    assert verified(broker, coordinator, adds=True) is Error.CONCURRENT_TRANSACTIONS
    config = broker.node.config
    patience_ms = config["add.partitions.to.txn.retry.backoff.max.ms"]
    assert len(coordinator.asked) == patience_ms // config["add.partitions.to.txn.retry.backoff.ms"] + 1


def test_who_only_looks_does_not_wait(broker: VirtualBroker) -> None:
    coordinator = Coordinator(Error.CONCURRENT_TRANSACTIONS)
    assert verified(broker, coordinator, adds=False) is Error.CONCURRENT_TRANSACTIONS
    assert coordinator.asked == [True]


def test_where_nobody_coordinates_the_id_nobody_is_asked(broker: VirtualBroker) -> None:
    coordinator = Coordinator(Error.NONE)
    verifier = broker.node.transactions.verifier
    verifier._calls = coordinator  # type: ignore[assignment]
    asked = verifier.verify("t", PRODUCER, [PLACE], adds=True)  # there is no __transaction_state yet
    assert broker.wait(broker.loop.create_task(asked)) == {PLACE: Error.COORDINATOR_NOT_AVAILABLE}
    assert coordinator.asked == []

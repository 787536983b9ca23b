"""Partition of __transaction_state: what is read of it, and what becomes of records that cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from minibroker.errors import Error
from minibroker.log.build import build_batch
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.records import Record
from minibroker.log.validate import COORDINATOR
from minibroker.simulation.loop import START_MS
from minibroker.transactions import TRANSACTION_STATE_TOPIC, partition
from minibroker.transactions.metadata import TransactionMetadata
from minibroker.transactions.records import decode, encode
from minibroker.transactions.states import ONGOING
from tests.broker.handlers.transactional import Transactional
from tests.broker.virtual_broker import VirtualBroker, virtual_broker
from tests.coordinator.counts import hold

pytestmark = pytest.mark.outside

SETTINGS: dict[str, object] = {"transaction.state.log.num.partitions": 1}
Stored = tuple[bytes, bytes | None]


def stored(name: str, *partitions: int) -> Stored:
    metadata = TransactionMetadata(
        producer_id=7,
        timeout_ms=60_000,
        last_update_ms=START_MS,
        producer_epoch=3,
        state=ONGOING,
        start_ms=START_MS,
        partitions=dict.fromkeys(("o", number) for number in partitions),
    )
    return encode(name, metadata, 2)


@contextmanager
def read(*records: Stored) -> Iterator[VirtualBroker]:
    """Yield a broker that has read these records."""
    storage = MemoryStorage(lambda: START_MS)
    with virtual_broker(SETTINGS, storage=storage) as broker:
        Transactional(broker, "other").begin()
        replica = broker.node.replicas[TRANSACTION_STATE_TOPIC, 0]
        for key, value in records:
            data = bytearray(build_batch(2, [Record(key, value, (), START_MS)]))
            broker.run(
                lambda data=data: replica.append(data, now_ms=START_MS, steady_ms=0, acks=-1, origin=COORDINATOR)  # type: ignore[misc]
            )
    with virtual_broker(SETTINGS, storage=storage) as broker:
        broker.pass_ms(100)
        yield broker


def known(broker: VirtualBroker) -> dict[str, list[int]]:
    ids = broker.node.transactions.coordinator.led[0].shard.ids
    return {name: [number for _, number in found.metadata.partitions] for name, found in ids.items()}


def test_of_each_id_only_the_last_record_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def noted(key: bytes, value: bytes | None) -> Any:
        decoded.append(key)
        return decode(key, value)

    growing = [stored("a", *range(count)) for count in range(50)]
    monkeypatch.setattr(partition, "decode", noted)
    with read(*growing, stored("b", 1), stored("a", 1, 2), stored("c", 3), (stored("c")[0], None)) as broker:
        assert known(broker) == {"other": [], "b": [1], "a": [1, 2]}
        assert len(decoded) == len(set(decoded)) == 4


def test_a_record_of_another_release_does_not_hide_the_one_before() -> None:
    key, value = stored("a", 1)
    assert value is not None
    with read((key, value), (key, b"\0\2" + value[2:]), (b"\0\7" + key[2:], value)) as broker:
        assert known(broker) == {"other": [], "a": [1]}


def test_a_last_record_that_is_broken_is_said_with_its_offset() -> None:
    key, value = stored("a", 1)
    assert value is not None
    with read(stored("b", 1), (key, value[:-1]), stored("c", 2)) as broker:
        assert f"{TRANSACTION_STATE_TOPIC}-0 cannot be read from offset 2 on" in "\n".join(broker.said)
        assert Transactional(broker, "b").init() == Error.NOT_COORDINATOR


def test_a_broken_record_that_is_not_the_last_of_its_id_does_no_harm() -> None:
    key, value = stored("a", 1)
    assert value is not None
    with read((key, value[:-1]), stored("a", 2)) as broker:
        assert known(broker) == {"other": [], "a": [2]}


def test_an_id_that_was_forgotten_above_the_high_watermark_is_answered_for_when_that_is_safe() -> None:
    with virtual_broker(SETTINGS) as broker:
        producer = Transactional(broker, "t")
        producer.begin()
        replica = broker.node.replicas[TRANSACTION_STATE_TOPIC, 0]
        release = hold(replica)
        data = bytearray(build_batch(2, [Record(stored("t")[0], None, (), START_MS)]))
        broker.run(lambda: replica.append(data, now_ms=START_MS, steady_ms=0, origin=COORDINATOR))
        broker.run(broker.node.transactions.coordinator.led[0]._begin_again)
        broker.pass_ms(100)
        assert producer.init() == Error.COORDINATOR_LOAD_IN_PROGRESS
        broker.run(release)
        assert producer.init() == Error.NONE

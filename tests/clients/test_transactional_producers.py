"""A transactional producer learns with its first call that there are no transactions, in every language at hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minibroker import Broker
from tests.interop import kafka

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def of_kafka_python(address: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, transactional_id="of kafka-python")
    try:
        producer.init_transactions()
    finally:
        producer.close(0)


def of_confluent(address: str) -> None:
    from confluent_kafka import KafkaException, Producer

    try:
        Producer({"bootstrap.servers": address, "transactional.id": "of confluent", "log_level": 0}).init_transactions()
    except KafkaException as failure:
        error = failure.args[0]
        assert error.fatal(), error
        assert not error.retriable(), error
        assert "minibroker has no transactions yet" in error.str()
        raise RuntimeError(error.name()) from failure


def of_aiokafka(address: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def start() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id="of aiokafka")
        try:
            await producer.start()
        finally:
            await producer.stop()

    asyncio.run(start())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("begin", [of_kafka_python, of_confluent, of_aiokafka], ids=lambda begin: begin.__name__)
def test_python(begin: Callable[[str], None], address: str) -> None:
    with pytest.raises(Exception, match=r"(?i)transactional_?id_?authorization_?failed"):
        begin(address)


@pytest.mark.parametrize("version", ["2.8.2", "3.9.2", "4.4.0"])
def test_java(version: str, address: str, tmp_path: Path) -> None:
    program = str(kafka.HERE / "TransactionalProducer.java")
    told = kafka.run(kafka.Release("kafka-clients", version), program, address, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("TransactionalIdAuthorizationException: "), told.stdout

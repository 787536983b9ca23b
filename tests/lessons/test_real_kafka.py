"""The lesson of a hanging transaction beside real Kafka: what its commands tell there is what the lesson says."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from minibroker.client.admin import Admin
from minibroker.client.cluster import Cluster
from minibroker.client.coordinators import GROUP
from minibroker.client.transactions import Transactions
from minibroker.cluster.nodes import RUNNING
from minibroker.errors import Error, KafkaError
from minibroker.events import EventStream
from minibroker.lessons import load
from minibroker.lessons.commands import Command
from minibroker.lessons.running import Player, new_clock
from minibroker.lessons.scenario import ERROR, TOLD, Expectation
from minibroker.lessons.stage import Stage
from tests.differential.kafka import Kafka, missing_tools

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_tools()), reason=f"needs {missing_tools()}"),
]

INSIDE = ("start brokers", "advance", "batches")  # what nobody can do to a Kafka, or see of it


class OnKafka(Stage):
    """A stage whose one broker is a Kafka that runs; time goes by as it does."""

    def __init__(self, address: str, asked: Cluster, *, is_classic: bool):
        clock = new_clock()
        clock.thaw()
        super().__init__(clock, EventStream(clock.now_ms), Random(1))
        self._asked, self._is_classic = asked, is_classic
        self._host, self._port = address.split(":")
        on: Any = SimpleNamespace(
            controller=SimpleNamespace(controller=SimpleNamespace(get_topic=asked.topics.get)),
            partition=lambda topic, partition: SimpleNamespace(leader=1),
            broker_ids=[1],
            states={1: RUNNING},
            cut_from_clients=(),
            bootstrap_servers=address,
            cluster_id="",
        )
        self.cluster = on

    def address_of(self, broker: int) -> tuple[str, int]:
        return self._host, int(self._port)

    async def do(self, command: Command) -> list[str]:
        if command.verb in INSIDE:
            return []
        if command.verb == "topic":
            await Admin(self._asked).create_topics([command["NAME"]])
            await self._asked.topic(command["NAME"])
            return []
        if command.verb == "init for" and self._is_classic:
            command.values["classic"] = True
        if command.verb == "find hanging":
            command.values["timeout"] = "0s"
        told: list[str] = await self._asked.retrying(partial(super().do, command))
        if command.verb in ("commit", "abort"):
            await self._asked.retrying(self._ended)
        return told

    async def _ended(self) -> None:
        """Raise what is tried again until every marker is written."""
        transactions = Transactions(self._asked)
        names = [each.transactional_id for each in await transactions.list_transactions()]
        for each in (await transactions.describe_transactions(names)).values():
            if each.state.startswith("Prepare"):
                raise KafkaError(Error.CONCURRENT_TRANSACTIONS, each.state)

    async def _coordinator(self, key: str, key_type: int = GROUP) -> int:
        return await self._asked.retrying(lambda: self._asking.coordinator(1, key, key_type))

    async def close(self) -> None:
        self.cluster = None
        await super().close()


@pytest.mark.parametrize("release", ["3.9.2", "4.4.0"])
async def test_a_hanging_transaction_is_found_and_ended_in_kafka_as_the_lesson_says(
    release: str, tmp_path: Path
) -> None:
    is_classic = release < "4"
    scenario = load("hanging")
    steps = scenario.steps[:-1] if is_classic else scenario.steps  # the last one is about transactions v2
    settings = {"transaction.partition.verification.enable": "false"}
    with Kafka(release, tmp_path / "kafka", settings) as kafka:
        async with Cluster(kafka.address) as asked:
            stage = OnKafka(kafka.address, asked, is_classic=is_classic)
            player = Player(scenario, stage)
            for step in steps:
                step.expectations = [_in_kafka(each) for each in step.of_kind(TOLD, ERROR) if "batch " not in each.text]
                assert (await player.play(step)).failures == []
            await stage.close()


def _in_kafka(expected: Expectation) -> Expectation:
    return Expectation(expected.kind, expected.text.replace("16 minutes old", "* minutes old"), expected.line_number)

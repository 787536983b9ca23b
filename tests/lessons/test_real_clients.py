"""Lessons about transactions with clients that people use: what the lesson says of clients, these do."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from threading import Condition, Thread
from typing import Any

import pytest

from minibroker.events import EventStream
from minibroker.lessons import load
from minibroker.lessons.clients import Asking, Reader
from minibroker.lessons.commands import parse_command
from minibroker.lessons.running import Player, new_clock
from minibroker.lessons.stage import Stage

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # kafka-python's
]

HANG_S = 60  # bounds a hang, and nothing else
POLL_MS = 50
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
Records = dict[int, str]


class Seen:
    """What a consumer in a thread of its own has read, and how far it is."""

    def __init__(self) -> None:
        self._changed = Condition()
        self.records: Records = {}
        self.position = 0
        self.is_over = False
        self.failure: BaseException | None = None

    def note(self, records: Records, position: int) -> None:
        with self._changed:
            self.records |= records
            self.position = position
            self._changed.notify_all()

    def fail(self, failure: BaseException) -> None:
        with self._changed:
            self.failure = failure
            self._changed.notify_all()

    def wait_for(self, position: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.failure is not None or self.position >= position, HANG_S)
        if self.failure is not None:
            raise self.failure


def by_kafka_python(address: str, topic: str, seen: Seen, **settings: Any) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer, place = KafkaConsumer(bootstrap_servers=address, **settings), TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    while not seen.is_over:
        rows = consumer.poll(POLL_MS).get(place, [])
        seen.note({row.offset: row.value.decode() for row in rows}, consumer.position(place))
    consumer.close()


def by_aiokafka(address: str, topic: str, seen: Seen, **settings: Any) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def consume() -> None:
        async with AIOKafkaConsumer(bootstrap_servers=address, **settings) as consumer:
            place = TopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(place, 0)
            while not seen.is_over:
                rows = (await consumer.getmany(timeout_ms=POLL_MS)).get(place, [])
                seen.note({row.offset: row.value.decode() for row in rows}, await consumer.position(place))

    asyncio.run(consume())


def by_librdkafka(address: str, topic: str, seen: Seen) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "nobody", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    while not seen.is_over:
        row = consumer.poll(POLL_MS / 1000)
        found: Records = {}
        if row is not None and row.error() is None:
            found[row.offset()] = row.value().decode()
        (place,) = consumer.position([TopicPartition(topic, 0)])
        seen.note(found, max(place.offset, 0))
    consumer.close()


@asynccontextmanager
async def reading(consume: Callable[..., None], address: str, topic: str, **settings: Any) -> AsyncIterator[Seen]:
    """Let a consumer read a partition from its beginning, as long as the block goes on."""
    seen = Seen()

    def run() -> None:
        try:
            consume(address, topic, seen, **settings)
        except BaseException as failure:
            seen.fail(failure)

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        seen.is_over = True
        await asyncio.to_thread(thread.join, HANG_S)


@asynccontextmanager
async def playing(name: str) -> AsyncIterator[Player]:
    clock = new_clock()
    stage = Stage(clock, EventStream(clock.now_ms), Random(1))
    try:
        yield Player(load(name), stage)
    finally:
        await stage.close()


# Libraries with the isolation.level that they have by themselves, which is the last of each row, or are given.
READERS: dict[str, tuple[Callable[..., None], dict[str, Any], str]] = {
    "librdkafka": (by_librdkafka, {}, COMMITTED),
    "kafka-python": (by_kafka_python, {}, UNCOMMITTED),
    "aiokafka": (by_aiokafka, {}, UNCOMMITTED),
    "kafka-python committed": (by_kafka_python, {"isolation_level": COMMITTED}, COMMITTED),
    "aiokafka committed": (by_aiokafka, {"isolation_level": COMMITTED}, COMMITTED),
}
READ = [
    *(("open-transaction", "orders"), ("markers", "orders"), ("late-end", "orders"), ("hanging", "orders")),
    ("exactly-once", "exactly"),
]


@pytest.mark.parametrize("library", READERS)
@pytest.mark.parametrize(("name", "topic"), READ)
async def test_consumers_read_what_the_lesson_says_that_they_read(name: str, topic: str, library: str) -> None:
    consume, settings, isolation = READERS[library]
    async with playing(name) as player:
        asking = Asking(player.stage.address_of, "another")
        first, *steps = player.scenario.steps
        assert not (await player.play(first)).failures
        async with reading(consume, player.stage.on.bootstrap_servers, topic, **settings) as seen:
            for step in [None, *steps]:
                outcome = None if step is None else await player.play(step)
                assert outcome is None or not outcome.failures
                leader = player.stage.on.replica(topic, 0, 1)
                assert leader is not None
                end = leader.high_watermark
                if isolation is COMMITTED:
                    end = leader.log.last_stable_offset(end)
                await asyncio.to_thread(seen.wait_for, end)
                reader = Reader(asking, topic, 0, is_committed=isolation is COMMITTED)
                rows = [line.split() for line in await reader.read([1]) if line[0].isdigit()]
                assert (seen.records, seen.position) == ({int(row[0]): row[1] for row in rows}, end)
        await asking.close()


# Producers


def produced_by_kafka_python(address: str, client: str, *, is_idempotent: bool) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=address, client_id=client, enable_idempotence=is_idempotent, acks="all", retries=5
    )
    producer.send("orders", b"a", partition=0).get(HANG_S)
    producer.close()


def produced_by_librdkafka(address: str, client: str, *, is_idempotent: bool) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": address, "client.id": client, "enable.idempotence": is_idempotent, "retries": 5}
    )
    producer.produce("orders", b"a", partition=0)
    assert producer.flush(HANG_S) == 0


@pytest.mark.parametrize("is_idempotent", [False, True])
@pytest.mark.parametrize("produced", [produced_by_kafka_python, produced_by_librdkafka])
async def test_a_lost_answer_makes_two_of_one_record_without_idempotence(
    produced: Callable[..., None], is_idempotent: bool
) -> None:
    async with playing("retries") as player:
        for line in ("start 1 brokers", "topic orders replicas=1"):
            await player.stage.do(parse_command(line))
        cluster = player.stage.on
        rule = cluster.nodes[1].faults.add(api="Produce", client_id="real", close="after", times=1)
        await asyncio.to_thread(produced, cluster.bootstrap_servers, "real", is_idempotent=is_idempotent)
        assert rule.strike_count == 1
        replica = cluster.replica("orders", 0, 1)
        assert replica is not None
        assert replica.log.log_end_offset == (1 if is_idempotent else 2)


def taken_over_by_kafka_python(address: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, transactional_id="shop")
    producer.init_transactions()
    producer.close()


def taken_over_by_librdkafka(address: str) -> None:
    from confluent_kafka import Producer

    Producer({"bootstrap.servers": address, "transactional.id": "shop"}).init_transactions(HANG_S)


@pytest.mark.parametrize("taken_over", [taken_over_by_kafka_python, taken_over_by_librdkafka])
async def test_who_comes_after_a_zombie_asks_again_by_itself(taken_over: Callable[[str], None]) -> None:
    async with playing("zombies") as player:
        first, _, _, *fenced = player.scenario.steps
        assert not (await player.play(first)).failures
        await asyncio.to_thread(taken_over, player.stage.on.bootstrap_servers)
        for step in fenced[:3]:  # anna is refused by both partitions, and by the coordinator
            assert not (await player.play(step)).failures


# What a consumer reads that stood still during an unclean election, at offset 3: the table of the lesson.
AFTER_UNCLEAN = {
    ("kafka-python", ""): ["1 x", "2 y", "3 z", "4 w"],
    ("librdkafka", ""): ["1 x", "2 y", "3 z", "4 w"],
    ("aiokafka", ""): ["3 z", "4 w"],
    ("kafka-python", "2.0.2"): ["3 z", "4 w"],
    ("kafka-python", "1.4.7"): ["3 z", "4 w"],
}
FOLLOWING = Path(__file__).with_name("following.py")


@pytest.mark.parametrize(("library", "version"), AFTER_UNCLEAN)
async def test_consumers_of_several_ages_do_after_an_unclean_election_what_the_lesson_says(
    library: str, version: str
) -> None:
    env = dict(os.environ)
    if version:
        env["PYTHONPATH"] = _path_of(library, version)
    async with playing("unclean-election") as player:
        first, *steps = player.scenario.steps
        assert not (await player.play(first)).failures
        address = player.stage.on.bootstrap_servers
        command = (sys.executable, str(FOLLOWING), library, address, "orders")
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=env)
        assert process.stdout is not None
        try:
            lines = [(await asyncio.wait_for(process.stdout.readline(), HANG_S)).decode().strip()]
            for step in steps:
                outcome = await player.play(step)
                assert not outcome.failures
                if any(each.text == "position 3" for each in step.expectations):
                    player.stage.clock.thaw()
                    while len(lines) < 3:
                        lines.append((await asyncio.wait_for(process.stdout.readline(), HANG_S)).decode().strip())
                    player.stage.clock.freeze()
                    process.send_signal(signal.SIGSTOP)
                if any(each.text == "4 w" for each in step.expectations):
                    break
            assert lines == ["0 a", "1 b", "2 c"]
            process.send_signal(signal.SIGCONT)
            player.stage.clock.thaw()
            read: list[str] = []
            while not read or read[-1] != "4 w":
                read.append((await asyncio.wait_for(process.stdout.readline(), HANG_S)).decode().strip())
            assert read == AFTER_UNCLEAN[library, version]
        finally:
            process.kill()
            await process.wait()


def _path_of(library: str, version: str) -> str:
    """Return where a version of a library is, fetched if need be."""
    from tests.clients.build import Missing, command_of
    from tests.clients.matrix import Client

    try:
        return command_of(Client(library, version, "python", ())).environment["PYTHONPATH"]
    except Missing as missing:
        pytest.skip(str(missing))

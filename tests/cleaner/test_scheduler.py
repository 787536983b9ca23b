"""Retention and compaction of a broker that runs, on a clock in the hand; with our own client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from minibroker.broker.broker import Node
from minibroker.broker.http_calls import Refused
from minibroker.broker.http_pages import metrics
from minibroker.broker.http_verbs import call
from minibroker.cleaner.pieces import Pieces
from minibroker.client import Admin, Cluster, Consumer, Producer
from minibroker.clock.steered import SteeredClock
from minibroker.config import BrokerConfig
from minibroker.errors import Error, KafkaError
from minibroker.event_kinds import Compaction
from minibroker.events import Event
from minibroker.log.build import build_batch
from minibroker.log.checkpoints import CLEANER_OFFSETS, read_offsets
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.records import Record
from minibroker.reporter import Reporter
from tests.sealing import seal

pytestmark = pytest.mark.outside

BEGIN_MS = 1_795_000_000_000
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
KINDS = ("roll", "retention", "compaction_begin", "compaction", "compaction_given_up", "uncleanable")
SMALL = {"internal.segment.bytes": "1000"}
COMPACTED = {"cleanup.policy": "compact", **SMALL}


class Said(Reporter):
    """What people were told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


class Held:
    """A broker whose clock stands, and what is done with it."""

    def __init__(self, storage: MemoryStorage, clock: SteeredClock, as_version: str | None, settings: dict[str, Any]):
        self.clock = clock
        self.storage = storage
        self.said = Said()
        self.events: list[Event] = []
        self.node = Node(
            BrokerConfig.from_sources({"listeners": "PLAINTEXT://127.0.0.1:0", **settings}),
            storage,
            clock=clock,
            chance=Random(1),
            as_version=as_version,
            reporter=self.said,
        )
        self.node.events.subscribe(self.events.append, KINDS)

    @property
    def lines(self) -> list[str]:
        return [event.line for event in self.events]

    def log(self, topic: str, partition: int = 0) -> Any:
        return self.node.replicas[topic, partition].log

    def bases(self, topic: str) -> list[int]:
        return [segment.base_offset for segment in self.log(topic).segments]

    def files(self, topic: str, suffix: str) -> list[str]:
        return sorted(name for name in self.storage.list(f"{topic}-0") if name.endswith(suffix))

    async def produce(
        self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]], timestamp: int | None = None
    ) -> None:
        """Write keys and values, each in a batch of its own, by default as of now."""
        when = self.clock.now_ms() if timestamp is None else timestamp
        async with Cluster(self.node.bootstrap_servers) as client, Producer(client) as producer:
            for key, value in records:
                await producer.send(topic, value, key, partition=0, timestamp=when)

    async def fill(self, topic: str, count: int, keys: int = 5, timestamp: int | None = None) -> None:
        """Write records of some 160 bytes, of few keys."""
        await self.produce(topic, ((b"k%d" % (each % keys), b"%090d" % each) for each in range(count)), timestamp)

    async def read(self, topic: str, start: int | str = "earliest") -> list[tuple[int, bytes | None, bytes | None]]:
        found: list[tuple[int, bytes | None, bytes | None]] = []
        async with Cluster(self.node.bootstrap_servers) as client, Consumer(client) as consumer:
            await consumer.assign([(topic, 0, start)])
            while True:
                found += [(each.offset, each.key, each.value) for each in await consumer.fetch(0)]
                if consumer.is_at_end:
                    return found

    async def alter(self, topic: str, **configs: str) -> None:
        async with Cluster(self.node.bootstrap_servers) as client:
            changes = {name.replace("_", "."): value for name, value in configs.items()}
            await Admin(client).alter_configs({("topic", topic): changes})


@asynccontextmanager
async def held(
    storage: MemoryStorage | None = None,
    clock: SteeredClock | None = None,
    *,
    as_version: str | None = None,
    **settings: object,
) -> AsyncIterator[Held]:
    """Start a broker whose clock stands; settings are Kafka's, with underscores for dots."""
    if clock is None:
        clock = SteeredClock(BEGIN_MS)
        clock.freeze()
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    found = Held(storage or MemoryStorage(clock.now_ms), clock, as_version, dotted)
    await found.node.start()
    await clock.advance(0)  # the cleaner looks for the first time when it starts
    try:
        yield found
    finally:
        if found.node.is_ready:
            await found.node.stop()


# Retention by the clock


async def test_old_segments_go_at_the_first_check_after_their_time_and_their_files_a_minute_later() -> None:
    async with held() as broker:
        broker.node.create_topic("orders", 1, {"retention.ms": str(HOUR_MS), **SMALL})
        await broker.fill("orders", 10)
        await broker.clock.advance("30m")
        await broker.fill("orders", 10)
        bases = broker.bases("orders")
        assert len(bases) == 4
        # Checked half a minute after the start, then every five minutes: at 60:30 the first half is too old.
        await broker.clock.advance("30m")
        assert broker.bases("orders") == bases
        await broker.clock.advance("30s")
        start = bases[2] if bases[2] <= 10 else bases[1]
        assert broker.bases("orders") == [base for base in bases if base >= start]
        assert broker.log("orders").log_start_offset == start
        assert broker.events[-1].at_ms == BEGIN_MS + HOUR_MS + MINUTE_MS // 2
        assert broker.events[-1].sentence.endswith("because they were older than retention.ms.")
        assert broker.files("orders", ".deleted")
        await broker.clock.advance(MINUTE_MS - 1)
        assert broker.files("orders", ".deleted")
        await broker.clock.advance(1)
        assert not broker.files("orders", ".deleted")
        assert [offset for offset, _, _ in await broker.read("orders")] == list(range(start, 20))


async def test_an_idle_topic_loses_its_active_segment_too() -> None:
    async with held() as broker:
        broker.node.create_topic("orders", 1, {"retention.ms": "1000"})
        await broker.fill("orders", 3)
        await broker.clock.advance("1m")
        assert broker.lines == ["roll b1 orders-0 base=3", "retention b1 orders-0 segments=1 bytes=486 start=3"]
        assert await broker.read("orders") == []
        await broker.clock.advance("1h")
        assert broker.bases("orders") == [3], "an empty one stays"
        assert len(broker.lines) == 2, "an empty one stays"
        await broker.fill("orders", 1)
        assert [offset for offset, _, _ in await broker.read("orders")] == [3]


async def test_what_is_more_than_retention_bytes_goes() -> None:
    async with held() as broker:
        broker.node.create_topic("orders", 1, {"retention.bytes": "2000", **SMALL})
        await broker.fill("orders", 40)
        size_bytes = broker.log("orders").size_bytes
        await broker.clock.advance("30s")
        log = broker.log("orders")
        assert 2000 <= log.size_bytes < 2000 + log.segments[0].size_bytes < size_bytes
        assert broker.events[-1].sentence.endswith("because they were more than retention.bytes.")


async def test_deleted_records_take_their_segments_with_them_at_the_next_check() -> None:
    async with held() as broker:
        broker.node.create_topic("orders", 1, SMALL)
        await broker.fill("orders", 20)
        bases = broker.bases("orders")
        async with Cluster(broker.node.bootstrap_servers) as client:
            await Admin(client).delete_records({("orders", 0): bases[2]})
        assert broker.bases("orders") == bases
        await broker.clock.advance("30s")
        assert broker.bases("orders") == bases[2:]
        assert broker.lines[-1].endswith(f"start={bases[2]}")


async def test_who_reads_what_has_gone_is_told_so() -> None:
    async with held() as broker:
        broker.node.create_topic("orders", 1, {"retention.ms": "1000"})
        await broker.fill("orders", 3)
        async with Cluster(broker.node.bootstrap_servers) as client, Consumer(client) as consumer:
            await consumer.assign([("orders", 0, 1)])
            await broker.node.cleaning.retention_now()
            assert [each.offset for each in await consumer.fetch(0)] == [1, 2]
            await consumer.seek("orders", 0, 1)
            await broker.clock.advance("31s")
            with pytest.raises(KafkaError) as refused:
                await consumer.fetch(0)
            assert refused.value.code == Error.OFFSET_OUT_OF_RANGE


async def test_a_fetch_that_waits_is_not_disturbed_when_everything_before_it_goes() -> None:
    async with held() as broker:
        broker.node.create_topic("orders", 1, {"retention.ms": "1000"})
        await broker.fill("orders", 3)
        async with Cluster(broker.node.bootstrap_servers) as client, Consumer(client) as consumer:
            await consumer.assign([("orders", 0, "latest")])
            waiting = asyncio.create_task(consumer.fetch(DAY_MS))
            while not broker.node.replicas["orders", 0].waiters:
                await asyncio.sleep(0)
            await broker.clock.advance("31s")
            assert broker.bases("orders") == [3]
            assert not waiting.done()
            await broker.fill("orders", 1)
            assert [each.offset for each in await waiting] == [3]


async def test_files_that_a_broker_leaves_when_it_stops_are_removed_by_its_next_start() -> None:
    async with held() as broker:
        broker.node.create_topic("orders", 1, {"retention.ms": "1000"})
        await broker.fill("orders", 3)
        await broker.clock.advance("31s")
    assert broker.files("orders", ".deleted")
    async with held(broker.storage, broker.clock) as again:
        assert not again.files("orders", ".deleted")
        assert again.bases("orders") == [3]


async def test_many_partitions_are_looked_at_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[int] = []
    looked: list[object] = []
    async with held() as broker:
        retention = broker.node.cleaning.retention
        broker.node.create_topic("orders", 240, {"segment.index.bytes": "100"})
        take = retention._take_some
        monkeypatch.setattr(retention, "_take_some", lambda replica: looked.append(replica) or take(replica))
        step = Pieces._step
        monkeypatch.setattr(Pieces, "_step", lambda self: (step(self), pieces.append(len(looked)))[0])
        await broker.clock.advance("30s")
        assert len(looked) == 240
        assert pieces == [50, 100, 150, 200, 240]


async def test_many_segments_of_one_log_go_in_pieces() -> None:
    for is_asked in (False, True):
        async with held() as broker:
            broker.node.create_topic("orders", 1, {"retention.ms": "1000", "internal.segment.bytes": "170"})
            await broker.fill("orders", 40)
            bases = broker.bases("orders")
            assert len(bases) == 40
            if is_asked:
                broker.node.clock.skew_ms = 2000
                (row,) = await broker.node.cleaning.retention_now("orders")
                assert (row.segments, row.start_offset, row.reason) == (40, 40, "older than retention.ms")
            await broker.clock.advance("30s")
            assert [line for line in broker.lines if line.startswith("retention")] == [
                f"retention b1 orders-0 segments={count} bytes={count * 162} start={start}"
                for count, start in ((16, 16), (16, 32), (8, 40))
            ]
            assert broker.bases("orders") == [40]
            await broker.clock.advance("1m")
            assert not broker.files("orders", ".deleted")


async def test_a_topic_that_is_deleted_meanwhile_does_no_harm() -> None:
    async with held() as broker:
        for name in ("a", "b"):
            broker.node.create_topic(name, 1, {"retention.ms": "1000"})
            await broker.fill(name, 3)
        broker.node.events.subscribe(lambda event: broker.node.change(_deletion(broker, "b")), ("retention",))
        await broker.clock.advance("2m")
        assert broker.lines == ["roll b1 a-0 base=3", "retention b1 a-0 segments=1 bytes=486 start=3"]
        assert not broker.said.lines


def _deletion(broker: Held, topic: str) -> Any:
    return broker.node.controller.delete_topic(name=topic)


async def test_a_paused_broker_looks_when_it_goes_on() -> None:
    async with held() as broker:
        broker.node.create_topic("orders", 1, {"retention.ms": "1000"})
        await broker.fill("orders", 3)
        broker.node.pause()
        await broker.clock.advance("1h")
        assert not broker.lines
        broker.node.resume()
        assert broker.bases("orders") == [3]


# Compaction by the clock


async def test_the_cleaner_looks_every_fifteen_seconds_and_keeps_the_last_value_of_each_key() -> None:
    async with held() as broker:
        broker.node.create_topic("users", 1, COMPACTED)
        await broker.fill("users", 40)
        end = broker.log("users").active.base_offset
        await broker.clock.advance(14_999)
        assert not broker.events[len(broker.bases("users")) - 1 :], "nothing but the rolls"
        await broker.clock.advance(1)
        done = broker.events[-1]
        assert done.kind == "compaction"
        assert done.at_ms == BEGIN_MS + 15_000
        found = await broker.read("users")
        assert [offset for offset, _, _ in found if offset < end] == list(range(end - 5, end))
        assert {key: value for _, key, value in found} == {b"k%d" % (each % 5): b"%090d" % each for each in range(40)}
        assert read_offsets(broker.storage, CLEANER_OFFSETS) == {("users", 0): end}
        assert broker.files("users", ".deleted")
        await broker.clock.advance("1m")
        assert not broker.files("users", ".deleted")
        assert broker.lines[-1] == done.line, "clean it stays"


async def test_the_dirtiest_log_is_first_and_one_is_done_before_the_next_begins() -> None:
    async with held() as broker:
        for name in ("half", "dirty"):
            broker.node.create_topic(name, 1, {**COMPACTED, "min.cleanable.dirty.ratio": "0.1"})
            await broker.fill(name, 40, keys=30)
        await broker.node.cleaning.compact_now("half")
        await broker.fill("half", 20, keys=20)
        del broker.events[:]
        await broker.clock.advance("15s")
        assert [(event.kind, event.topic) for event in broker.events] == [  # type: ignore[attr-defined]
            ("compaction_begin", "dirty"),
            ("compaction", "dirty"),
            ("compaction_begin", "half"),
            ("compaction", "half"),
        ]
        assert 0.1 < broker.events[2].dirty_ratio < broker.events[0].dirty_ratio == 1  # type: ignore[attr-defined]
        assert "is above min.cleanable.dirty.ratio 0.10" in broker.events[2].sentence


async def test_a_log_that_is_not_dirty_enough_waits_until_max_compaction_lag() -> None:
    async with held() as broker:
        broker.node.create_topic("users", 1, {**COMPACTED, "min.cleanable.dirty.ratio": "0.9"})
        await broker.fill("users", 30, keys=30)
        await broker.node.cleaning.compact_now("users")
        await broker.fill("users", 15)
        del broker.events[:]
        await broker.clock.advance("10m")
        assert not broker.events
        await broker.alter("users", max_compaction_lag_ms=str(11 * MINUTE_MS))
        await broker.clock.advance("2m")
        assert [event.kind for event in broker.events] == ["compaction_begin", "compaction"]
        assert broker.events[0].at_ms == BEGIN_MS + 11 * MINUTE_MS + 15_000
        assert "older than max.compaction.lag.ms" in broker.events[0].sentence


async def test_records_younger_than_min_compaction_lag_stay() -> None:
    async with held() as broker:
        broker.node.create_topic("users", 1, {**COMPACTED, "min.compaction.lag.ms": str(HOUR_MS)})
        await broker.fill("users", 40)
        await broker.clock.advance("59m")
        (row,) = await broker.node.cleaning.compact_now("users")
        assert row.passes == 0
        assert row.reason == f"the rest is younger than min.compaction.lag.ms={HOUR_MS}"
        assert len(await broker.read("users")) == 40
        await broker.clock.advance("2m")
        assert broker.events[-1].kind == "compaction"


@pytest.mark.setting("log.cleaner.enable", "log.cleaner.threads")
async def test_without_a_cleaner_nothing_is_compacted_but_on_demand() -> None:
    for broker_held in (held(log_cleaner_enable="false"), held(log_cleaner_threads=0)):
        async with broker_held as broker:
            broker.node.create_topic("users", 1, COMPACTED)
            await broker.fill("users", 40)
            await broker.clock.advance("1h")
            assert len(await broker.read("users")) == 40
            (row,) = await broker.node.cleaning.compact_now("users")
            assert row.passes == 1
            assert len(await broker.read("users")) < 15


async def test_topics_of_the_broker_itself_are_compacted() -> None:
    async with held(offsets_topic_num_partitions=1) as broker:
        async with Cluster(broker.node.bootstrap_servers) as client:
            from minibroker.client.groups import Groups

            broker.node.create_topic("orders")
            await broker.fill("orders", 9)
            for offset in range(8):
                await Groups(client).alter_offsets("readers", {("orders", 0): offset})
        await broker.node.cleaning.roll_now("__consumer_offsets")
        await broker.clock.advance("15s")
        assert broker.lines[-1].startswith("compaction b1 __consumer_offsets-0 end=8 records=8->1 ")
        await broker.node.stop()
        async with (
            held(broker.storage, broker.clock, offsets_topic_num_partitions=1) as again,
            Cluster(again.node.bootstrap_servers) as client,
        ):
            found = await Groups(client).fetch_offsets(["readers"])
            assert found["readers"]["orders", 0].offset == 7


async def test_retention_of_a_compacted_log_is_the_cleaners() -> None:
    async with held() as broker:
        configs = {**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": str(MINUTE_MS)}
        broker.node.create_topic("users", 1, configs)
        await broker.fill("users", 40)
        await broker.clock.advance("1m")
        kinds = [event.kind for event in broker.events if event.kind != "roll"]
        assert kinds == ["compaction_begin", "compaction"]
        await broker.clock.advance("15s")
        assert broker.events[-1].kind == "retention"
        assert broker.events[-1].at_ms == BEGIN_MS + 75_000
        assert await broker.read("users") == []


async def test_deleted_records_of_a_compacted_log_take_their_segments_with_them() -> None:
    async with held() as broker:
        broker.node.create_topic("users", 1, {**COMPACTED, "min.cleanable.dirty.ratio": "1"})
        await broker.fill("users", 20, keys=20)
        await broker.clock.advance("1m")
        bases = broker.bases("users")
        replica = broker.node.replicas["users", 0]
        replica.log.advance_log_start(bases[1])
        replica.log_start_moved("of this test")
        await broker.clock.advance("15s")
        assert broker.bases("users") == bases[1:]


async def test_a_policy_that_is_changed_at_run_time_counts_at_once() -> None:
    async with held() as broker:
        broker.node.create_topic("orders", 1, {"retention.ms": "1000", **SMALL})
        await broker.fill("orders", 40)
        await broker.alter("orders", cleanup_policy="compact")
        await broker.clock.advance("31s")
        assert {event.kind for event in broker.events} == {"roll", "compaction_begin", "compaction"}
        await broker.alter("orders", cleanup_policy="delete")
        await broker.clock.advance("5m")
        assert broker.events[-1].kind == "retention"
        assert await broker.read("orders") == []


async def test_tombstones_go_when_their_time_is_over_and_something_new_has_come() -> None:
    async with held() as broker:
        broker.node.create_topic("users", 1, {"cleanup.policy": "compact"})
        await broker.produce("users", [(b"a", b"1"), (b"a", None), (b"b", b"1")])
        await broker.node.cleaning.roll_now("users")
        await broker.clock.advance("15s")
        assert [(key, value) for _, key, value in await broker.read("users")] == [(b"a", None), (b"b", b"1")]
        await broker.clock.advance("1d")
        assert broker.events[-1].at_ms == BEGIN_MS + 15_000, "nothing is dirty"
        await broker.produce("users", [(b"b", b"2"), (b"b", b"3"), (b"b", b"4")])
        await broker.node.cleaning.roll_now("users")
        await broker.clock.advance("15s")
        assert [(key, value) for _, key, value in await broker.read("users")] == [(b"b", b"4")]


@pytest.mark.parametrize(("as_version", "magic"), [("2.8", 1), ("4.4", 2)])
async def test_old_formats_stay_where_they_are_served(as_version: str, magic: int) -> None:
    async with held(as_version=as_version) as broker:
        broker.node.create_topic("users", 1, {"cleanup.policy": "compact"})
        async with Cluster(broker.node.bootstrap_servers) as client:
            from minibroker.log.build import build_batch
            from minibroker.log.records import Record

            del client
            log = broker.log("users")
            for offset in range(6):
                record = Record(b"k", b"%d" % offset, (), BEGIN_MS, offset)
                log.append_as_follower(build_batch(1, [record]), now_ms=BEGIN_MS)
            broker.node.replicas["users", 0].advance(BEGIN_MS)
        await broker.node.cleaning.roll_now()
        await broker.node.cleaning.compact_now()
        assert [(batch.magic, batch.last_offset) for batch in broker.log("users").segments[0].batches()] == [(magic, 5)]


# What comes between the pieces of a pass

NEWEST = {b"k%d" % (each % 5): b"%090d" % each for each in range(200)}


def latest(records: list[tuple[int, bytes | None, bytes | None]]) -> dict[bytes | None, bytes | None]:
    return {key: value for _, key, value in records}


@asynccontextmanager
async def under_way() -> AsyncIterator[Held]:
    """A broker whose cleaner is in the middle of a pass, and rests: it may read and write 10,000 bytes a second."""
    async with held(log_cleaner_io_max_bytes_per_second=10_000) as broker:
        broker.node.create_topic("users", 1, COMPACTED)
        await broker.fill("users", 200)
        await broker.clock.advance("19s")
        assert broker.events[-1].kind == "compaction_begin"
        assert broker.files("users", ".cleaned")
        yield broker
        assert not broker.said.lines


@pytest.mark.setting("log.cleaner.io.max.bytes.per.second")
async def test_a_pass_keeps_to_its_share_of_the_disk() -> None:
    async with under_way() as broker:
        await broker.clock.advance("10m")
        begun, done = broker.events[-2:]
        assert isinstance(done, Compaction)
        # Everything is read twice, and written once if it stays.
        share_ms = (2 * done.bytes_before + done.bytes_after) / 10
        assert done.at_ms - begun.at_ms == pytest.approx(share_ms, rel=0.05)


async def test_a_pass_gives_up_when_its_topic_is_deleted() -> None:
    async with under_way() as broker:
        broker.node.create_topic("others", 1, COMPACTED)
        await broker.fill("others", 40)
        broker.node.change(_deletion(broker, "users"))
        assert not [name for name in broker.storage.list("") if name.startswith("users")]
        await broker.clock.advance("10m")
        assert [event.topic for event in broker.events[-2:]] == ["others", "others"]  # type: ignore[attr-defined]


async def test_a_pass_gives_up_when_the_policy_is_no_longer_compact() -> None:
    async with under_way() as broker:
        await broker.alter("users", cleanup_policy="delete")
        await broker.clock.advance("10m")
        assert broker.events[-1].sentence.endswith("because cleanup.policy is not compact.")
        assert not broker.files("users", ".cleaned")
        left = await broker.read("users")
        assert 5 < len(left) < 200, "what it had finished stays"
        assert latest(left) == NEWEST, "what it had finished stays"


async def test_a_pass_gives_up_when_the_log_is_cut() -> None:
    async with under_way() as broker:
        broker.node.directory.truncate_to("users", 0, 180)
        await broker.clock.advance(1000)
        assert broker.events[-1].sentence.endswith("because the log was cut meanwhile.")
        broker.node.replicas["users", 0].truncated()
        await broker.clock.advance("10m")
        assert broker.events[-1].kind == "compaction", "the next turn does it"


async def test_a_broker_that_stops_or_is_killed_gives_up_and_begins_again() -> None:
    for end in (Node.stop, Node.kill):
        async with under_way() as broker:
            await end(broker.node)
            async with held(broker.storage, broker.clock) as again:
                assert not again.files("users", ".cleaned")
                assert again.events[-1].kind == "compaction", "the cleaner looks when it starts"
                left = await again.read("users")
                assert len(left) < 20
                assert latest(left) == NEWEST


async def test_a_paused_broker_compacts_nothing() -> None:
    async with under_way() as broker:
        broker.node.pause()
        await broker.clock.advance("10m")
        assert broker.events[-1].kind == "compaction_begin"
        broker.node.resume()
        await broker.clock.advance("10m")
        assert broker.events[-1].kind == "compaction"


async def test_who_asks_for_the_log_that_is_being_compacted_does_not_wait_for_the_clock() -> None:
    async with under_way() as broker:
        (row,) = await broker.node.cleaning.retention_now("users")
        assert row.segments == 0
        assert broker.events[-1].kind == "compaction"
        (compacted,) = await broker.node.cleaning.compact_now("users")
        assert compacted.end_offset == broker.log("users").active.base_offset


async def test_who_waits_for_a_log_that_goes_is_told_so() -> None:
    gone = "the partition has gone from here, or its broker has stopped"
    async with under_way() as broker:
        asked = [asyncio.create_task(broker.node.cleaning.compact_now("users")) for _ in range(2)]
        await asyncio.sleep(0)
        broker.node.change(_deletion(broker, "users"))
        assert [(await each)[0].reason for each in asked] == [gone, gone]
    async with under_way() as broker:
        waiting = asyncio.create_task(broker.node.cleaning.compact_now("users"))
        await asyncio.sleep(0)
        await broker.node.kill()
        assert (await waiting)[0].reason == gone


async def test_who_asks_and_goes_away_does_no_harm() -> None:
    async with under_way() as broker:
        asked = asyncio.create_task(broker.node.cleaning.compact_now("users"))
        await asyncio.sleep(0)
        asked.cancel()
        await broker.node.cleaning.compact_now("users")
        assert broker.events[-1].kind == "compaction"
        assert latest(await broker.read("users")) == NEWEST


async def test_each_piece_is_small_and_others_have_their_turn_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """No piece reads or writes more than 256 records' worth, and the loop turns between two of them."""
    from minibroker.cleaner import cleaner

    class Looked(cleaner._Pass):
        def run(self) -> Generator[int, None, None]:
            for spent_bytes in super().run():
                spent.append(spent_bytes)
                turns_at.append(turns)
                yield spent_bytes

    spent: list[int] = []
    turns_at: list[int] = []
    turns = 0
    monkeypatch.setattr(cleaner, "_Pass", Looked)
    async with held() as broker:
        broker.node.create_topic("users", 1, {"cleanup.policy": "compact"})
        async with Cluster(broker.node.bootstrap_servers) as client, Producer(client) as producer:
            for number in range(20_000):
                await producer.enqueue("users", b"%090d" % number, b"%d" % (number % 900), timestamp=BEGIN_MS)
            await producer.flush()
        await broker.node.cleaning.roll_now()
        asked = asyncio.create_task(broker.node.cleaning.compact_now("users"))
        while not asked.done():
            turns += 1
            await asyncio.sleep(0)
        assert asked.result()[0].records_before == 20_000
    assert len(spent) >= 2 * 20_000 // 256
    assert max(spent) <= 512 * 1024
    assert turns_at == sorted(set(turns_at)), "two pieces in one turn"


# What cannot be compacted


async def test_a_log_that_cannot_be_read_is_left_alone_and_people_are_told() -> None:
    async with held() as broker:
        for name in ("bad", "good"):
            broker.node.create_topic(name, 1, COMPACTED)
            await broker.fill(name, 40)
        segment = broker.log("bad").segments[1]
        file = broker.storage.open(segment.path)
        data = bytearray(file.read_at(0, file.size_bytes))
        data[120] ^= 1
        file.truncate(0)
        file.append([data])
        file.close()
        await broker.clock.advance("10m")
        kinds = [(event.kind, event.topic) for event in broker.events if event.kind != "roll"]  # type: ignore[attr-defined]
        assert ("uncleanable", "bad") in kinds
        assert ("compaction", "good") in kinds
        assert len(kinds) == 4, "it is tried once"
        assert len(broker.said.lines) == 1
        assert broker.said.lines[0].startswith("bad-0 cannot be compacted, and is left as it is: bad-0/000000")
        assert 'minibroker_uncleanable_partition{partition="0",topic="bad"} 1' in list(metrics(broker.node))
        (row,) = await broker.node.cleaning.compact_now("bad")
        assert row.passes == 0
        assert row.reason.startswith("it is left alone: bad-0/000000")


async def test_the_figures_say_what_was_done() -> None:
    async with held() as broker:
        broker.node.create_topic("users", 1, COMPACTED)
        broker.node.create_topic("orders", 1, {"retention.ms": "1000"})
        await broker.fill("users", 40)
        await broker.fill("orders", 3)
        await broker.clock.advance("1m")
        figures = dict(line.rsplit(" ", 1) for line in metrics(broker.node) if line.startswith("minibroker_"))
        assert figures["minibroker_compaction_passes_total"] == "1"
        assert figures["minibroker_retention_segments_total"] == "1"
        assert figures["minibroker_retention_bytes_total"] == "486"
        before = int(figures["minibroker_compaction_bytes_before_total"])
        assert 0 < int(figures["minibroker_compaction_bytes_after_total"]) < before
        assert int(figures["minibroker_dirty_percent_max"]) < 50


# On demand


async def test_on_demand_everything_is_done_while_the_clock_stands_and_said_why_not() -> None:
    async with held() as broker:
        node = broker.node
        for name, configs in (("users", {"cleanup.policy": "compact"}), ("orders", {"retention.ms": "1000"})):
            node.create_topic(name, 1, configs)
        reasons = [row.reason for row in await node.cleaning.compact_now()]
        assert reasons == ["cleanup.policy is not compact", "there are no records"]
        await broker.fill("users", 40)
        await broker.fill("orders", 3)
        reasons = [row.reason for row in await node.cleaning.compact_now("users")]
        assert reasons == ["everything is in the active segment: roll first"]
        assert [row.reason for row in await node.cleaning.retention_now()] == [
            "every segment is within retention.ms=1000",
            "cleanup.policy is compact: only what is below the log start offset goes",
        ]
        rolled = await node.cleaning.roll_now()
        assert [(row.topic, row.is_rolled, row.base_offset) for row in rolled] == [
            ("orders", True, 3),
            ("users", True, 40),
        ]
        assert [row.reason for row in await node.cleaning.roll_now("users", 0)] == ["the active segment is empty"]
        (compacted,) = await node.cleaning.compact_now("users", 0)
        assert compacted[:5] == (1, "users", 0, 1, 40)
        assert (compacted.records_before, compacted.records_after, compacted.reason) == (40, 5, "")
        assert broker.clock.now_ms() == BEGIN_MS
        node.clock.skew_ms = 2000
        (removed,) = await node.cleaning.retention_now("orders")
        assert (removed.segments, removed.start_offset, removed.reason) == (1, 3, "older than retention.ms")


@pytest.mark.setting("log.cleaner.dedupe.buffer.size")
async def test_a_map_that_is_too_small_for_all_keys_takes_several_passes() -> None:
    async with held(log_cleaner_dedupe_buffer_size=3000) as broker:
        broker.node.create_topic("users", 1, COMPACTED)
        await broker.fill("users", 90, keys=45)
        (row,) = await broker.node.cleaning.compact_now("users")
        end = broker.log("users").active.base_offset
        assert row.passes > 1
        assert (row.end_offset, row.reason) == (end, "")
        assert row.records_before == end
        assert row.records_after == 45


async def test_what_is_behind_an_open_transaction_waits_for_it() -> None:
    async with held() as broker:
        broker.node.create_topic("users", 1, COMPACTED)
        await broker.fill("users", 40)
        replica = broker.node.replicas["users", 0]
        replica.high_watermark = 3  # as if a follower lagged behind
        (row,) = await broker.node.cleaning.compact_now("users")
        assert row.passes == 0
        assert row.reason == ("from offset 3 on a transaction is open, or not every replica in sync has the records")


async def test_over_http_the_same_verbs_give_the_same_rows() -> None:
    async with held() as broker:
        node = broker.node
        node.create_topic("users", 2, {"cleanup.policy": "compact"})
        await broker.fill("users", 40)
        (rolled,) = await call(node, "POST", "/roll", {"topic": "users", "partition": 0})
        assert rolled == {
            "broker": 1, "topic": "users", "partition": 0, "is_rolled": True, "base_offset": 40, "reason": ""
        }  # fmt: skip
        compacted = await call(node, "POST", "/compact", {"topic": "users"})
        assert [(row["partition"], row["passes"], row["records_after"]) for row in compacted] == [(0, 1, 5), (1, 0, 0)]
        assert [row["segments"] for row in await call(node, "POST", "/retention")] == [0, 0]
        for body, status, said in (
            ({"topic": "nobody"}, "404 Not Found", "there is no topic 'nobody'"),
            ({"topic": "users", "partition": 2}, "404 Not Found", "'users' has no partition 2"),
            ({"partition": 1}, "400 Bad Request", "partition 1 of which topic?"),
            ({"topic": 3}, "400 Bad Request", "topic is to be a name, not 3"),
            ({"topics": "users"}, "400 Bad Request", "compact takes topic and partition, not topics"),
        ):
            with pytest.raises(Refused) as refused:
                await call(node, "POST", "/compact", body)
            assert (refused.value.status, str(refused.value)) == (status, said)


# A week


@pytest.mark.slow
async def test_a_week_that_is_moved_brings_all_that_a_week_would_in_order() -> None:
    async with held() as broker:
        configs = {"retention.ms": str(3 * DAY_MS), "message.timestamp.after.max.ms": str(DAY_MS * 2), **SMALL}
        broker.node.create_topic("orders", 1, configs)
        broker.node.create_topic("users", 1, {**COMPACTED, "min.compaction.lag.ms": str(DAY_MS)})
        await broker.fill("users", 40)
        await broker.fill("orders", 10)
        await broker.fill("orders", 10, timestamp=BEGIN_MS + 2 * DAY_MS - HOUR_MS)
        del broker.events[:]
        await broker.clock.advance("7d")
        happened = [(event.kind, (event.at_ms - BEGIN_MS) / DAY_MS) for event in broker.events]
        assert [kind for kind, _ in happened] == ["compaction_begin", "compaction", "retention", "roll", "retention"]
        for (_, day), expected in zip(happened, (1, 1, 3, 4.95, 4.95)):
            assert 0 <= day - expected < 0.01
        assert broker.bases("orders") == [20]
        assert not broker.files("orders", ".deleted")
        assert not broker.files("users", ".deleted")


async def test_on_a_day_on_which_nothing_is_to_be_done_the_loop_has_little_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settled: list[int] = []
    async with held() as broker:
        for number in range(5):
            broker.node.create_topic(f"t{number}", 2, COMPACTED if number % 2 else {})
        await broker.clock.advance("1m")
        settle = broker.clock.settle
        monkeypatch.setattr(broker.clock, "settle", lambda: settled.append(broker.clock.now_ms()) or settle())
        await broker.clock.advance("1d")
        # 17,000 looks at high watermarks and 6,000 of the cleaner are among it.
        assert 0 < len(settled) < 500


@pytest.mark.pure
async def test_flushes_come_with_the_seconds_since_the_start_whenever_they_are_first_wanted() -> None:
    async with held() as broker:
        flushed: list[int] = []
        await broker.clock.advance(400)
        broker.node.create_topic("orders", 1, {"flush.ms": "1"})
        log = broker.log("orders")
        flush = log.flush
        log.flush = lambda **named: (flushed.append(broker.clock.now_ms()), flush(**named))[1]
        await broker.fill("orders", 1)
        await broker.clock.advance(599)
        assert not flushed
        await broker.clock.advance(1)
        assert flushed == [BEGIN_MS + 1000]


async def test_a_new_start_of_the_log_gets_into_its_checkpoint() -> None:
    async with held() as broker:
        broker.node.create_topic("orders")
        await broker.fill("orders", 5)
        async with Cluster(broker.node.bootstrap_servers) as client:
            await Admin(client).delete_records({("orders", 0): 3})
        await broker.clock.advance("1m")
        assert read_offsets(broker.storage, "log-start-offset-checkpoint") == {("orders", 0): 3}


async def test_retention_does_not_believe_a_time_that_the_records_do_not_have() -> None:
    async with held() as broker:
        broker.node.create_topic("orders", 1, {"retention.ms": "60000"})
        now_ms = broker.clock.now_ms()
        for count in (10, 20, 500):
            sent = bytearray(build_batch(2, [Record(b"k", b"v", (), now_ms)] * count))
            sent[35:43] = (5).to_bytes(8, "big")  # the largest timestamp, as the header has it
            seal(sent)
            broker.log("orders").append_as_leader(sent, leader_epoch=0, now_ms=now_ms)
            broker.log("orders").roll()
        rows = await broker.node.cleaning.retention_now()
        assert (rows[0].segments, rows[0].start_offset) == (0, 0)

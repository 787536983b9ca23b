"""State of a topic that the product knows nothing of: written, read back, answered for, given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from minibroker.clock.steered import SteeredClock
from minibroker.coordinator.hashing import partition_of
from minibroker.coordinator.log import BatchHead
from minibroker.coordinator.partitions import RETRY_MS, WRITE_ERRORS, write_error
from minibroker.errors import Error, KafkaError, StorageError
from minibroker.events import Event
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.records import Record
from tests.coordinator.counts import TIMEOUT_MS, TOPIC, CountPartition, batches_of, counting, hold

pytestmark = pytest.mark.pure  # a partition that counts derives from one that is compiled


async def turn() -> None:
    """Let what was taken in this turn of the loop reach the log."""
    await asyncio.sleep(0)


def code_of(call: Callable[..., object], *given: object) -> int:
    with pytest.raises(KafkaError) as refused:
        call(*given)
    return refused.value.code


async def test_what_is_written_is_there_after_a_restart() -> None:
    storage, told = MemoryStorage(int), list[Error]()
    async with counting(storage, partitions=5) as (_, counts):
        for name in ("a", "b", "a"):
            counts.coordinator.find(name).count(name, told.append)
        assert told == []
        await turn()
        assert told == [Error.NONE] * 3
    async with counting(storage) as (_, counts):
        assert counts.coordinator.led.keys() == set(range(5))
        for name, count in (("a", 2), ("b", 1)):
            led = counts.coordinator.find(name)
            assert led.replica.partition == partition_of(name, 5)
            assert led.safe[name] == led.written[name] == count
            assert led.is_prepared


async def test_the_coordinator_is_made_when_there_is_something_to_read_and_never_after_the_end() -> None:
    async with counting(MemoryStorage(int), partitions=0) as (node, counts):
        node.create_topic("other", 1)
        assert counts.made is None
        assert code_of(counts.coordinator.find, "a") == Error.NOT_COORDINATOR
    storage = MemoryStorage(int)
    async with counting(storage, partitions=0) as (node, counts):
        assert counts.made is None
        node.create_topic(TOPIC, 1)
        made = counts.made
        assert made is not None
        assert made.led.keys() == {0}
    assert counts.made is None
    assert made.led == {}
    assert code_of(lambda: counts.coordinator) == Error.NOT_COORDINATOR


async def test_in_another_leader_epoch_all_is_read_again_and_who_waits_is_told() -> None:
    async with counting(MemoryStorage(int)) as (node, counts):
        led, told = counts.coordinator.find("a"), list[Error]()
        hold(led.replica)
        led.count("a", told.append)
        await turn()
        led.count("a", told.append)
        led.replica.lead(led.replica.leader_epoch + 1)
        counts.coordinator.follow()
        assert told == [Error.NOT_COORDINATOR] * 2
        assert code_of(led.count, "a", told.append) == Error.NOT_COORDINATOR
        other = counts.coordinator.find("a")
        assert other is not led
        assert other.epoch == led.epoch + 1
        assert (other.written, other.safe) == ({"a": 1}, {"a": 1})
        node.replicas[TOPIC, 0].log.fail(StorageError("no disk"))
        assert code_of(counts.coordinator.find, "a") == Error.NOT_COORDINATOR
        counts.coordinator.follow()
        assert counts.coordinator.led == {}


async def test_a_coordinator_of_another_leader_epoch_answers_nothing() -> None:
    async with counting(MemoryStorage(int)) as (_, counts):
        led = counts.coordinator.find("a")
        led.replica.lead(led.replica.leader_epoch + 1)  # and nobody has told the coordinator yet
        assert code_of(counts.coordinator.find, "a") == Error.NOT_COORDINATOR


async def test_who_is_told_to_look_elsewhere_and_asks_at_once_makes_no_second_coordinator() -> None:
    async with counting(MemoryStorage(int)) as (_, counts):
        led, told = counts.coordinator.find("a"), list[int]()
        replica, waiters = led.replica, len(led.replica.waiters)
        hold(replica)
        led.count("a", lambda error: told.extend((error, code_of(counts.coordinator.find, "a"))))
        await turn()
        replica.lead(replica.leader_epoch + 1)
        counts.coordinator.follow()
        assert told == [Error.NOT_COORDINATOR] * 2
        assert led.log.is_closed
        assert counts.coordinator.find("a").epoch == replica.leader_epoch
        assert len(replica.waiters) == waiters


async def test_of_a_topic_that_is_deleted_nothing_is_coordinated_any_more() -> None:
    async with counting(MemoryStorage(int), partitions=3) as (node, counts):
        before = list(counts.coordinator.led.values())
        assert len(before) == 3
        node.change(node.controller.delete_topic(name=TOPIC))
        assert counts.coordinator.led == {}
        assert all(led.log.is_closed for led in before)
        node.create_topic(TOPIC, 1)
        assert counts.coordinator.led.keys() == {0}


async def test_a_key_is_answered_for_when_its_last_record_is_safe() -> None:
    async with counting(MemoryStorage(int)) as (_, counts):
        led, told = counts.coordinator.find("a"), list[Error]()
        led.count("a", told.append)
        await turn()
        release = hold(led.replica)
        led.count("b", told.append)
        await turn()
        assert told == [Error.NONE]
        assert (led.written, led.safe) == ({"a": 1, "b": 1}, {"a": 1})
        led._begin_again()
        assert told == [Error.NONE, Error.NOT_COORDINATOR]
        led = counts.coordinator.find("a")
        assert led.safe == {"a": 1}
        assert code_of(counts.coordinator.find, "b") == Error.COORDINATOR_LOAD_IN_PROGRESS
        release()
        assert led.safe == {"a": 1, "b": 1}
        assert counts.coordinator.find("b") is led


async def test_what_cannot_be_written_has_not_happened() -> None:
    async with counting(MemoryStorage(int)) as (_, counts):
        led, told = counts.coordinator.find("a"), list[Error]()
        led.count("a", told.append)
        await turn()
        led.count("a", told.append)
        led.replica.min_in_sync, led.replica.replicas = 2, (1, 2)  # between being taken and being appended
        await turn()
        assert told == [Error.NONE, Error.COORDINATOR_NOT_AVAILABLE]
        assert (led.written, led.safe) == ({"a": 1}, {"a": 1})
        assert code_of(led.count, "a", told.append) == Error.NOT_ENOUGH_REPLICAS


async def test_watchers_are_told_that_a_coordinator_wrote_its_records() -> None:
    async with counting(MemoryStorage(int)) as (node, counts):
        seen: list[Event] = []
        node.events.subscribe(seen.append, ["append"])
        counts.coordinator.find("a").count("a", lambda error: None)
        await turn()
        node.replicas[TOPIC, 0].append(bytearray(build_batch(2, [Record(b"a", b"1")])), now_ms=0, steady_ms=0)
        assert [event.origin for event in seen] == ["coordinator", "producer"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [*WRITE_ERRORS, Error.MESSAGE_TOO_LARGE])
def test_clients_hear_of_a_coordinator_and_not_of_a_partition(error: Error) -> None:
    assert write_error(KafkaError(error, "")) == WRITE_ERRORS.get(error, error)


async def test_a_partition_that_cannot_be_read_is_coordinated_by_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    storage = MemoryStorage(int)
    async with counting(storage) as (node, counts):
        counts.stop()
        data = bytearray(build_batch(2, [Record(b"a", b"many", (), 0, 0)]))
        node.replicas[TOPIC, 0].append(data, now_ms=0, steady_ms=0, origin="coordinator")
    async with counting(storage) as (_, counts):
        assert code_of(counts.coordinator.find, "a") == Error.NOT_COORDINATOR
        (led,) = counts.coordinator.led.values()
        assert isinstance(led, CountPartition)
        led._begin_again()
    said = capsys.readouterr().err
    assert said.count("Nobody coordinates its counts as long as that is so") == 1
    assert "(docs/counts.md)" in said


async def test_a_batch_that_is_not_what_was_written_is_no_state() -> None:
    storage = MemoryStorage(int)
    async with counting(storage) as (_, counts):
        led = counts.coordinator.find("a")
        led.count("a", lambda error: None)
        await turn()
        path = led.replica.log.active.path
    file = storage.open(path)
    assert file.read_at(file.size_bytes - 2, 2) == b"1\0"  # the count, and no headers
    file.write_at(file.size_bytes - 2, b"5")
    async with counting(storage) as (_, counts):
        assert code_of(counts.coordinator.find, "a") == Error.NOT_COORDINATOR


async def test_a_disk_that_can_be_read_again_is_read_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = SteeredClock()
    clock.freeze()
    storage = MemoryStorage(clock.now_ms)
    async with counting(storage, clock=clock) as (_, counts):
        led, told = counts.coordinator.find("a"), list[Error]()
        led.count("a", told.append)
        await turn()

        def unreadable(*given: object, **named: object) -> None:
            raise StorageError("no disk")

        with monkeypatch.context() as patched:
            patched.setattr("minibroker.coordinator.log.read", unreadable)
            led._begin_again()
        assert code_of(counts.coordinator.find, "a") == Error.NOT_COORDINATOR
        await clock.advance(RETRY_MS, sessions=True)
        assert counts.coordinator.find("a").safe == {"a": 1}
    assert f"{TOPIC}-0: its counts have been read" in capsys.readouterr().err


# The batch of one producer


async def test_the_records_of_a_producer_and_a_marker_have_batches_of_their_own_in_their_order() -> None:
    async with counting(MemoryStorage(int)) as (_, counts):
        led, told = counts.coordinator.find("a"), list[tuple[int, Error]]()

        def note(number: int, error: Error) -> None:
            told.append((number, error))

        marker = build_transaction_marker(
            commit=True, offset=0, timestamp=1, producer_id=7, producer_epoch=3, coordinator_epoch=0
        )
        confirmed = led.replica.log.producers.start_verification(7, 3, -1, now_ms=0)
        heads = [
            None,
            None,
            BatchHead(7, 3, verification=confirmed),
            BatchHead(7, 3),
            BatchHead(7, 3, control=marker),
            None,
        ]
        writes = [led.count("a", partial(note, number), head=head) for number, head in enumerate(heads)]
        await turn()
        found = batches_of(led.replica)
        assert [(each.header_count, each.producer_id, each.is_transactional, each.is_control) for each in found] == [
            (2, -1, False, False),
            (1, 7, True, False),
            (1, 7, True, False),
            (1, 7, True, True),
            (1, -1, False, False),
        ]
        assert [each.producer_epoch for each in found[1:4]] == [3] * 3
        assert [write.end_offset for write in writes] == [1, 2, 3, 4, 5, 6]
        assert told == [(number, Error.NONE) for number in range(6)]
        assert led.replica.log.producers.open_transactions == {}
        led._begin_again()
        assert counts.coordinator.find("a").safe == {"a": 6}


async def test_a_batch_of_a_producer_that_is_over_is_refused_alone() -> None:
    async with counting(MemoryStorage(int)) as (_, counts):
        led, told = counts.coordinator.find("a"), list[Error]()
        confirmed = led.replica.log.producers.start_verification(7, 3, -1, now_ms=0)
        led.count("a", told.append, head=BatchHead(7, 3, verification=confirmed))
        with pytest.raises(KafkaError) as refused:
            led.count("b", told.append, head=BatchHead(7, 2))
        assert refused.value.code == Error.INVALID_PRODUCER_EPOCH
        led.count("c", told.append)
        await turn()
        assert told == [Error.NONE, Error.NONE]
        assert led.safe == led.written == {"a": 1, "c": 1}


# Patience


@pytest.mark.parametrize("is_longest_first", [False, True])
async def test_each_who_waits_gives_up_after_its_own_time(is_longest_first: bool) -> None:
    clock = SteeredClock()
    clock.freeze()
    async with counting(MemoryStorage(clock.now_ms), clock=clock) as (_, counts):
        led, told = counts.coordinator.find("a"), list[tuple[str, Error]]()
        release = hold(led.replica)
        times = {"b short": 100, "c usual": None, "a long": 60_000}

        def note(name: str, error: Error) -> None:
            told.append((name, error))

        for name in sorted(times, reverse=not is_longest_first):
            led.count(name, partial(note, name), timeout_ms=times[name])
            await turn()
        late = Error.COORDINATOR_NOT_AVAILABLE
        await clock.advance(99, sessions=True)
        assert told == []
        await clock.advance(1, sessions=True)
        assert told == [("b short", late)]
        await clock.advance(TIMEOUT_MS - 101, sessions=True)
        assert told == [("b short", late)]
        await clock.advance(1, sessions=True)
        assert told == [("b short", late), ("c usual", late)]
        release()
        assert told == [("b short", late), ("c usual", late), ("a long", Error.NONE)]
        assert led.safe == dict.fromkeys(times, 1)

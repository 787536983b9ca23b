"""One log against a model that keeps everything in a list, whatever is done to it and in whatever order."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.errors import Error, KafkaError, StorageError
from minibroker.log import reading
from minibroker.log.batches import batches
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.partition_log import PartitionLog
from minibroker.log.records import Record
from minibroker.log.recovery import open_log
from minibroker.log.segment import OFFSET_DELTA_MAX
from minibroker.log.settings import LogSettings, ValidationSettings
from minibroker.log.validate import COORDINATOR
from minibroker.simulation.disk import SimulatedStorage

from .audit import Row, all_batches, audit

SMALL = LogSettings(segment_bytes=700, index_interval_bytes=150, segment_index_bytes=80)


def opened(storage: MemoryStorage, log_settings: LogSettings = SMALL, **kwargs: int) -> PartitionLog:
    return open_log(storage, "t-0", log_settings, was_clean=True, **kwargs)


def new_log(log_settings: LogSettings = SMALL) -> PartitionLog:
    return opened(SimulatedStorage(), log_settings)


def produce(
    log: PartitionLog, values: list[bytes], *, magic: int = 2, epoch: int = 0, now_ms: int = 0, **kwargs: int
) -> int:
    """Append one batch; return the offset of its first record."""
    data = build_batch(magic, [Record(b"k", value, (), 1000) for value in values], **kwargs)
    return log.append_as_leader(bytearray(data), leader_epoch=epoch, now_ms=now_ms).first_offset


def values_of(log: PartitionLog) -> list[bytes | None]:
    return [row.value for row in audit(log)]


# Against the model

BATCH = st.tuples(
    st.integers(1, 5),  # records
    st.integers(0, 40),  # timestamp of the first
    st.sampled_from([0, 0, 1, 3]),  # codec
    st.sampled_from([0, 1, 2, 2, 2]),  # format sent
)
ACTION = st.one_of(
    st.tuples(st.just("append"), BATCH),
    st.tuples(st.just("append"), BATCH),
    st.tuples(st.just("append"), BATCH),
    st.tuples(st.just("truncate"), st.floats(0, 1)),
    st.tuples(st.just("advance"), st.floats(0, 1)),
    st.tuples(st.just("roll"), st.none()),
    st.tuples(st.just("flush"), st.none()),
    st.tuples(st.just("reopen"), st.booleans()),
    st.tuples(st.just("start over"), st.integers(0, 1000)),
)


@settings(deadline=None, max_examples=150)
@given(actions=st.lists(ACTION, max_size=40), message_format=st.sampled_from([0, 1, 2, 2]))
def test_a_log_agrees_with_a_list(actions: list[tuple[str, object]], message_format: int) -> None:
    chosen = LogSettings(
        segment_bytes=700,
        index_interval_bytes=150,
        segment_index_bytes=80,
        validation=ValidationSettings(message_format=message_format),
    )
    storage = SimulatedStorage()
    log = opened(storage, chosen)
    model: list[Row] = []
    start = end = epoch = 0
    for action, how in actions:
        if action == "append":
            count, timestamp, codec, magic = how  # type: ignore[misc]
            records = [Record(b"k%d" % (end + i), b"v", (), timestamp + i) for i in range(count)]
            data = bytearray(build_batch(magic, records, codec=codec))
            appended = log.append_as_leader(data, leader_epoch=epoch, now_ms=0)
            assert (appended.first_offset, appended.last_offset) == (end, end + count - 1)
            kept = magic > 0 and message_format > 0
            model += [
                Row(end + i, record.key, record.value, record.timestamp if kept else -1)
                for i, record in enumerate(records)
            ]
            end += count
        elif action == "truncate":
            offset = start + int(how * (end - start))  # type: ignore[operator]
            log.truncate_to(offset)
            end = log.log_end_offset  # batches go as a whole
            assert end <= offset
            start = min(start, end)
            model = [row for row in model if row.offset < end]
            epoch += 1
        elif action == "advance":
            start += int(how * (end - start))  # type: ignore[operator]
            log.advance_log_start(start)
        elif action == "roll":
            log.roll()
        elif action == "flush":
            log.flush()
            assert log.recovery_point == end
        elif action == "reopen":
            log.close() if how else log.release()
            log = open_log(storage, "t-0", chosen, was_clean=bool(how), log_start_offset=start)
        elif action == "start over":
            start = end = int(how)  # type: ignore[call-overload]
            model = []
            log.truncate_fully_and_start_at(end)
        assert (log.log_start_offset, log.log_end_offset) == (start, end)
    assert audit(log) == [row for row in model if row.offset >= start]


# Appending


def test_batches_lie_in_the_file_as_they_were_sent_but_for_offset_and_epoch() -> None:
    log = new_log()
    data = build_batch(2, [Record(b"k", b"v", (("h", b"x"),), 5)])
    log.append_as_leader(data, leader_epoch=7, now_ms=0)
    log.append_as_leader(data, leader_epoch=7, now_ms=0)
    first, second = (bytes(batch.view) for batch in all_batches(log))
    assert first == data[:12] + (7).to_bytes(4, "big") + data[16:]
    assert second == (1).to_bytes(8, "big") + first[8:]


def test_a_repeated_batch_of_an_idempotent_producer_is_answered_with_its_old_offsets() -> None:
    log = new_log()
    ids = {"producer_id": 9, "producer_epoch": 0}
    produce(log, [b"a", b"b"], base_sequence=0, **ids)
    produce(log, [b"c"], base_sequence=2, **ids)
    data = build_batch(2, [Record(b"k", b"a", (), 1000), Record(b"k", b"b", (), 1000)], base_sequence=0, **ids)
    again = log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=0)
    assert (again.first_offset, again.last_offset, again.is_duplicate) == (0, 1, True)
    assert values_of(log) == [b"a", b"b", b"c"]
    with pytest.raises(KafkaError) as refused:
        produce(log, [b"e"], base_sequence=5, **ids)
    assert refused.value.code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = new_log()
    with pytest.raises(KafkaError) as refused:
        produce(log, [bytes(800)])
    assert refused.value.code == Error.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


def test_a_follower_appends_what_its_leader_has_gaps_and_epochs_included() -> None:
    leader, follower = new_log(), new_log(LogSettings(segment_bytes=400, index_interval_bytes=100))
    for number in range(20):
        produce(leader, [b"%d" % number] * 3, epoch=number // 8)
    data = b"".join(bytes(batch.view) for batch in all_batches(leader) if batch.base_offset != 30)
    cut_off = data[:-5]
    follower.append_as_follower(cut_off, now_ms=0)
    assert follower.log_end_offset == 57
    follower.append_as_follower(
        data[len(data) - len(cut_off) % len(data) :][-86:] if False else bytes(all_batches(leader)[-1].view), now_ms=0
    )
    assert [bytes(batch.view) for batch in all_batches(follower)] == [
        bytes(batch.view) for batch in all_batches(leader) if batch.base_offset != 30
    ]
    assert follower.epochs.entries == leader.epochs.entries
    assert len(follower.segments) > len(leader.segments)
    audit(follower)


def test_a_follower_refuses_offsets_that_come_again_and_broken_batches() -> None:
    log = new_log()
    produce(log, [b"a"])
    data = bytearray(bytes(all_batches(log)[0].view))
    with pytest.raises(KafkaError):
        log.append_as_follower(data, now_ms=0)
    data[7] = 5
    data[-1] ^= 1
    with pytest.raises(KafkaError) as refused:
        log.append_as_follower(data, now_ms=0)
    assert refused.value.code == Error.CORRUPT_MESSAGE
    assert log.log_end_offset == 1


# Segments


def test_a_segment_ends_when_it_is_full() -> None:
    log = new_log()
    for _ in range(40):
        produce(log, [b"v" * 40])
    assert len(log.segments) > 3
    assert all(segment.size_bytes <= 700 for segment in log.segments)
    assert all(segment.offset_index.count <= 10 for segment in log.segments)


@pytest.mark.parametrize(("age_ms", "segments"), [(1000, 1), (1001, 2)])
def test_a_segment_ends_by_the_time_of_its_records(age_ms: int, segments: int) -> None:
    log = new_log(LogSettings(segment_ms=1000))
    for timestamp in (5000, 5000 + age_ms):
        data = build_batch(2, [Record(b"k", b"v", (), timestamp)])
        log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=5000)
    assert len(log.segments) == segments


@pytest.mark.parametrize(("age_ms", "segments"), [(1000, 1), (1001, 2)])
def test_a_segment_without_timestamps_ends_by_the_clock(age_ms: int, segments: int) -> None:
    log = new_log(LogSettings(segment_ms=1000, validation=ValidationSettings(message_format=0)))
    produce(log, [b"v"], magic=0, now_ms=0)
    produce(log, [b"v"], magic=0, now_ms=age_ms)
    assert len(log.segments) == segments


def test_a_segment_ends_before_its_offsets_outgrow_the_index() -> None:
    log = new_log(LogSettings())
    log.append_as_follower(build_batch(2, [Record(b"k", b"v", (), 1)], base_offset=0), now_ms=0)
    far = OFFSET_DELTA_MAX + 2
    log.append_as_follower(build_batch(2, [Record(b"k", b"w", (), 1)], base_offset=far), now_ms=0)
    assert [segment.base_offset for segment in log.segments] == [0, far]
    found = reading.read(log, 5, 1000, limit_offset=log.log_end_offset)
    assert found is not None
    assert next(batches(found.view())).base_offset == far


def test_active_indexes_are_preallocated_and_cut_at_the_end() -> None:
    storage = SimulatedStorage()
    log = opened(storage)
    assert storage.size_bytes("t-0/00000000000000000000.index") == 80
    assert storage.size_bytes("t-0/00000000000000000000.timeindex") == 72
    for _ in range(6):
        produce(log, [b"v" * 60])
    log.close()
    assert storage.size_bytes("t-0/00000000000000000000.index") == 16
    assert storage.size_bytes("t-0/00000000000000000000.timeindex") == 12


# Reading


def test_a_read_begins_with_the_batch_that_holds_the_offset_and_stops_at_the_limit() -> None:
    log = new_log()
    for number in range(5):
        produce(log, [b"%d" % number] * 2)
    found = reading.read(log, 3, 1 << 20, limit_offset=8)
    assert found is not None
    assert [(batch.base_offset, batch.last_offset) for batch in batches(found.view())] == [(2, 3), (4, 5), (6, 7)]
    assert reading.read(log, 8, 1 << 20, limit_offset=8) is None
    assert reading.read(log, 10, 1 << 20, limit_offset=10) is None


def test_a_log_that_has_just_been_written_reads_as_one_that_was_opened_again() -> None:
    storage = SimulatedStorage()
    written = opened(storage)
    leader = new_log(LogSettings())
    for number in range(9):
        produce(leader, [b"%d" % number] * 3)
    sent = [bytes(batch.view) for batch in all_batches(leader)]

    def compare() -> None:
        again = opened(storage)
        for offset in range(written.log_end_offset):
            for limit_offset in range(offset, written.log_end_offset + 1):
                mine, other = (reading.read(log, offset, 200, limit_offset=limit_offset) for log in (written, again))
                assert (mine and bytes(mine.view())) == (other and bytes(other.view())), (offset, limit_offset)

    written.append_as_follower(sent[0] + sent[2], now_ms=0)  # with a gap between and behind, as cleaning leaves them
    compare()
    written.append_as_follower(sent[4], now_ms=0)
    compare()
    written.truncate_to(13)
    compare()
    written.append_as_follower(sent[5] + sent[8], now_ms=0)
    compare()


def test_a_read_gives_one_whole_batch_even_if_it_is_too_large_unless_limits_are_hard() -> None:
    log = new_log()
    produce(log, [b"v" * 100])
    size_bytes = log.active.size_bytes
    assert len(reading.read(log, 0, 1, limit_offset=1) or ()) == size_bytes
    assert len(reading.read(log, 0, 1, limit_offset=1, whole_batch=False, may_cut=True) or ()) == 1
    assert reading.read(log, 0, 1, limit_offset=1, whole_batch=False) is None


@pytest.mark.parametrize("offset", [-1, 1, 4, 9])
def test_a_read_outside_the_log_is_out_of_range(offset: int) -> None:
    log = new_log()
    for _ in range(8):
        produce(log, [b"v"])
    log.advance_log_start(5)
    with pytest.raises(KafkaError) as refused:
        reading.read(log, offset, 100, limit_offset=8)
    assert refused.value.code == Error.OFFSET_OUT_OF_RANGE


def test_old_readers_get_old_formats() -> None:
    log = new_log()
    produce(log, [b"a", b"b"])
    produce(log, [b"c"], codec=1)
    found = reading.read(log, 1, 1 << 20, limit_offset=3)
    assert found is not None
    for magic in (0, 1):
        made = reading.converted_in_pieces(log, found.view(), magic, 1)
        data = b"".join(piece for piece in made if not isinstance(piece, int))
        assert [batch.magic for batch in batches(data)] == [magic, magic]
        assert [r.value for batch in batches(data) for r in batch.records(check_crc=True)] == [b"b", b"c"]


def test_special_timestamps() -> None:
    log = new_log()
    for number, timestamp in enumerate((100, 300, 200)):
        data = build_batch(2, [Record(b"k", b"v", (), timestamp)])
        log.append_as_leader(bytearray(data), leader_epoch=number, now_ms=0)
    log.advance_log_start(1)

    def answer(timestamp: int) -> tuple[int, int, int | None] | None:
        found = reading.find_offset(log, timestamp, limit_offset=3)
        return None if found is None else (found.timestamp, found.offset, found.leader_epoch)

    assert answer(reading.LATEST) == (-1, 3, 2)
    assert answer(reading.EARLIEST) == answer(reading.EARLIEST_LOCAL) == (-1, 1, 1)
    assert answer(reading.MAX_TIMESTAMP) == (300, 1, 1)
    assert answer(reading.LATEST_TIERED) == (-1, -1, -1)
    assert answer(301) is None
    assert reading.find_offset(log, 300, limit_offset=1) is None


@pytest.mark.parametrize("seed", range(12))
def test_a_search_by_time_misses_nothing_though_records_are_deleted_meanwhile(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found is the first since one of the log's starts that there were, whenever they moved."""
    monkeypatch.setattr(reading, "SOUGHT_BYTES_PIECE", 5_000)
    chance, log = Random(seed), new_log()
    times: list[int] = []
    for _ in range(30):
        batch = [chance.randrange(1_000) for _ in range(chance.randrange(1, 12))]
        times += batch
        data = build_batch(2, [Record(b"k", b"", (), time) for time in batch], codec=chance.choice([0, 1]))
        log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=0)
    while log.log_start_offset < len(times):
        wanted = chance.choice([*times, 2_000])
        work = reading.find_offset_in_pieces(log, wanted, limit_offset=len(times))
        starts = [log.log_start_offset]
        try:
            while True:
                next(work)
                if chance.random() < 0.5:
                    starts.append(min(log.log_start_offset + chance.randrange(1, 12), len(times)))
                    log.advance_log_start(starts[-1])
        except StopIteration as end:
            found = end.value
        rights = [next((at for at in range(start, len(times)) if times[at] >= wanted), None) for start in starts]
        assert (None if found is None else found.offset) in rights, (wanted, starts)
        log.advance_log_start(min(log.log_start_offset + 5, len(times)))


def test_list_offsets_of_version_0_counts_segments() -> None:
    log = new_log()
    while len(log.segments) < 4:
        produce(log, [b"v" * 60])
    bases = [segment.base_offset for segment in log.segments]
    ask = reading.offsets_before
    assert ask(log, reading.LATEST, 10, now_ms=0) == [log.log_end_offset, *reversed(bases)]
    assert ask(log, reading.LATEST, 2, now_ms=0) == [log.log_end_offset, bases[-1]]
    assert ask(log, reading.EARLIEST, 10, now_ms=0) == [0]


# Transactions


def test_aborted_transactions_are_found_for_what_is_read() -> None:
    storage = SimulatedStorage()
    log = opened(storage)
    chance = Random(1)
    sequences = {1: 0, 2: 0, 3: 0}
    for _ in range(60):
        producer = chance.choice(list(sequences))
        ids = {"producer_id": producer, "producer_epoch": 0}
        if chance.random() < 0.4:
            marker = build_transaction_marker(
                offset=0, commit=chance.random() < 0.3, timestamp=0, coordinator_epoch=0, **ids
            )
            log.append_as_leader(bytearray(marker), leader_epoch=0, now_ms=0, origin=COORDINATOR)
        else:
            produce(log, [b"v"] * 2, base_sequence=sequences[producer], transactional=True, **ids)
            sequences[producer] += 2
    audit(log)
    assert len(log.segments) > 5
    log.close()
    audit(opened(storage))
    for name in storage.list("t-0"):
        if name.endswith((".txnindex", ".index", ".timeindex", ".snapshot")):
            storage.remove(f"t-0/{name}")
            log = opened(storage)
            audit(log)
            log.close()


# A disk that fails


def test_a_full_disk_refuses_and_the_log_goes_on_when_there_is_room() -> None:
    import errno

    storage = SimulatedStorage()
    log = opened(storage)
    produce(log, [b"a"])
    storage.fail(errno.ENOSPC, doing="append", written_bytes=30)
    with pytest.raises(StorageError):
        produce(log, [b"b"])
    produce(log, [b"c"])
    assert values_of(log) == [b"a", b"c"]


@pytest.mark.parametrize("by_plan", [False, True])
def test_what_a_segment_gets_when_it_ends_is_on_the_disk_too(by_plan: bool) -> None:
    """All of its records had been flushed before it ended; then its indexes are cut, and the last time is noted."""
    storage = SimulatedStorage()
    log = opened(storage)
    storage.sync_directory("")
    produce(log, [b"a"])
    log.flush()
    log.roll()
    produce(log, [b"b"])
    if by_plan:
        plan = log.flush_plan()
        plan.carry_out(storage)
        log.flushed(plan)
    else:
        log.flush()
    for kind in (".index", ".timeindex"):
        path = log.segments[0].path_of(kind)
        left = {storage.crashed(Random(seed)).size_bytes(path) for seed in range(30)}
        assert left == {storage.size_bytes(path)}


def test_after_a_failed_flush_the_log_is_offline_until_it_is_opened_again() -> None:
    storage = SimulatedStorage()
    log = opened(storage)
    produce(log, [b"a"])
    log.flush()
    produce(log, [b"b"])
    told: list[StorageError | None] = []
    log.on_offline = lambda: told.append(log.offline)
    storage.fail(doing="sync")
    for _ in range(2):
        with pytest.raises(StorageError):
            log.flush()
    assert told == [log.offline]
    assert log.offline is not None
    with pytest.raises(StorageError):
        produce(log, [b"c"])
    with pytest.raises(StorageError):
        reading.read(log, 0, 100, limit_offset=1)
    log.close()
    log = open_log(storage, "t-0", SMALL, recovery_point=1)
    assert values_of(log)[:1] == [b"a"]


@pytest.mark.parametrize("kind", [".log", ".txnindex"])
def test_a_log_that_ends_hears_of_what_another_was_told_of_its_files(kind: str) -> None:
    storage = SimulatedStorage()
    log = opened(storage)
    produce(log, [b"a"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    marker = build_transaction_marker(
        commit=False, offset=0, timestamp=0, producer_id=1, producer_epoch=0, coordinator_epoch=0
    )
    log.append_as_leader(bytearray(marker), leader_epoch=0, now_ms=0, origin=COORDINATOR)
    path = log.active.path_of(kind)
    storage.fail(doing="sync", path=path)
    with pytest.raises(StorageError):
        storage.open(path).sync()
    with pytest.raises(StorageError):
        log.close()
    assert log.offline is not None
    assert log.recovery_point == 0
    assert log.active.open_files() == {}


@pytest.mark.parametrize("was_clean", [True, False])
def test_of_the_snapshots_within_segments_only_the_newest_stays(was_clean: bool) -> None:
    storage = MemoryStorage(int)
    log = opened(storage)

    def snapshots() -> list[int]:
        return [int(name[:20]) for name in sorted(storage.list("t-0")) if name.endswith(".snapshot")]

    for number in range(8):
        produce(log, [b"a"], producer_id=1, producer_epoch=0, base_sequence=number)
        if number in (2, 5):
            log.roll()
        log.close()
        kept = [base for base in (3, 6) if base <= number + 1]
        assert snapshots()[-1] == number + 1
        log = open_log(storage, "t-0", SMALL, was_clean=was_clean)
        assert snapshots() == sorted({*kept, number + 1})
        assert log.producers.producers[1].last_sequence == number
    log.close()


def test_a_log_that_ends_has_no_more_files_open_than_before() -> None:
    log = opened(SimulatedStorage())
    for _ in range(20):
        produce(log, [b"a" * 100])
    before = [segment.open_files() for segment in log.segments]
    assert len(before) > 3
    assert log.end() is not None
    assert [segment.open_files() for segment in log.segments] == before
    log.release()
    assert not any(segment.open_files() for segment in log.segments)


def test_flush_messages_flushes_after_so_many() -> None:
    log = new_log(LogSettings(flush_messages=3))
    for _ in range(2):
        produce(log, [b"a"])
    assert log.recovery_point == 0
    produce(log, [b"a"])
    assert log.recovery_point == 3


def test_flush_ms_is_due_when_something_waits_for_it() -> None:
    log = new_log(LogSettings(flush_ms=100))
    assert not log.flush_due(1000)
    produce(log, [b"a"])
    log.flush(now_ms=1000)
    assert not log.flush_due(5000)
    produce(log, [b"a"])
    assert not log.flush_due(1099)
    assert log.flush_due(1100)

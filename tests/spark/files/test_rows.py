"""Rows of log directories: the same as the records one by one, whatever borders and ranges there are."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.checkpoints import CLEANER_OFFSETS, format_offsets, format_topic_id
from minibroker.log.index import TXN_ENTRY
from minibroker.log.read_only_storage import ReadOnlyStorage
from minibroker.log.records import Record
from minibroker.spark.columns.rows_of_query import ROWS, CorruptBatch
from minibroker.spark.files.directories import Unreadable
from minibroker.spark.files.rows import TaskReader
from minibroker.spark.filters import Filters
from minibroker.spark.ranges import DataLoss
from minibroker.spark.reading import plan
from minibroker.spark.reading import read as read_task
from tests.goldens import LOG_DIRECTORIES, log_meaning
from tests.interop.random_logs import RandomLog
from tests.spark.logs import (
    START_MS,
    Row,
    asked,
    golden_directory,
    offsets,
    one_by_one,
    open_at,
    promise,
    read,
    rows_of,
    tasks_of,
    tree,
    written,
)

BOTH = pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])


@pytest.mark.parametrize("name", LOG_DIRECTORIES)
@BOTH
def test_all_that_kafka_wrote_is_read(name: str, isolation: str, tmp_path: Path) -> None:
    root = golden_directory(tmp_path, name)
    before = tree(root)
    starts = {"trimmed-0": 17}  # of these some records have been deleted, in the middle of a segment
    partitions = log_meaning(name)["partitions"]
    rows = 0
    for partition in sorted(partitions):
        topic, _, number = partition.rpartition("-")
        wanted = one_by_one(root / partition, read_committed=isolation == "read_committed")
        wanted = [row for row in wanted if row[0] >= starts.get(partition, 0)]
        assign = f'{{"{topic}":[{number}]}}'
        for chunk_bytes in (1, 300, 8 << 20):
            found = read(
                root,
                assign=assign,
                includeHeaders="true",
                kafka_isolation_level=isolation,
                chunk_bytes=chunk_bytes,
                group_bytes=chunk_bytes,
            )
            assert found == wanted, partition
        rows += len(wanted)
    assert rows > 100
    assert tree(root) == before


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("seed", range(12))
def test_random_logs_are_read_in_any_pieces(seed: int, isolation: str, tmp_path: Path) -> None:
    log, chance = RandomLog(tmp_path, seed), Random(seed)
    for _ in range(chance.randint(1, 4)):
        log.grow()
        log.open()
    log.log.close()
    is_committed = isolation == "read_committed"
    wanted = one_by_one(log.path, read_committed=is_committed)
    everything = one_by_one(log.path)
    told: dict[str, object] = {"includeHeaders": "true", "kafka_isolation_level": isolation}
    before = tree(tmp_path)
    assert read(tmp_path, "random", **told) == wanted
    first, end = sorted(chance.choices(offsets(everything), k=2))
    for pieces in (
        {"maxBytesPerPartition": 1},
        {"maxBytesPerPartition": 700},
        {"minPartitions": 5},
        {"maxRecordsPerPartition": 3} if everything[-1][0] < 10_000 else {},
        {"startingOffsets": first},
        {"startingOffsets": first, "endingOffsets": min(end, wanted[-1][0] if wanted else 0) if is_committed else end},
    ):
        low, high = pieces.get("startingOffsets", 0), pieces.get("endingOffsets", 1 << 62)
        if low > high:
            continue
        if is_committed and (not wanted or low > wanted[-1][0]):
            continue  # it may begin behind the last stable offset
        part = [row for row in wanted if low <= row[0] < high]
        chunk_bytes = chance.choice([1, 200, 5000])
        assert read(tmp_path, "random", chunk_bytes=chunk_bytes, **told, **pieces) == part, pieces
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["kraft39-2-after-clean", "random"])
def test_columns_that_are_not_named_are_left_out_and_nothing_else(name: str, tmp_path: Path) -> None:
    chance = Random(name)
    if name == "random":
        log = RandomLog(tmp_path / "random", 5)
        log.grow()
        log.log.close()
        root = tmp_path / "random"
    else:
        root = golden_directory(tmp_path, name)
    told = asked(root, subscribePattern=".*")
    for task in plan(told):
        told.columns = ROWS.names
        whole = pa.Table.from_batches(TaskReader(task, told).batches(), ROWS)
        for columns in [[name] for name in ROWS.names] + [chance.sample(ROWS.names, k) for k in range(2, 8)]:
            told.columns = columns
            reader = TaskReader(task, told, chunk_bytes=2000)
            assert reader.schema.names == columns
            found = pa.Table.from_batches(reader.batches(), reader.schema)
            assert found.equals(whole.select(columns)), (task, columns)


@pytest.mark.parametrize("seed", range(20))
def test_filters_are_kept_to_the_row(seed: int, tmp_path: Path) -> None:
    log, chance = RandomLog(tmp_path, seed), Random(seed)
    for _ in range(3):
        log.grow()
        log.open()
    log.log.close()
    rows = one_by_one(log.path)
    times, numbers = sorted(row[1] for row in rows), offsets(rows)

    def wanted(row: Row, filters: Filters) -> bool:
        offset, timestamp = row[:2]
        return (
            (filters.first_offset is None or offset >= filters.first_offset)
            and (filters.end_offset is None or offset < filters.end_offset)
            and (filters.first_timestamp is None or timestamp >= filters.first_timestamp)
            and (filters.end_timestamp is None or timestamp < filters.end_timestamp)
        )

    for _ in range(10):
        filters = Filters(
            first_offset=chance.choice([None, chance.choice(numbers)]),
            end_offset=chance.choice([None, chance.choice(numbers)]),
            first_timestamp=chance.choice([None, chance.choice(times), chance.choice(times) + 1]),
            end_timestamp=chance.choice([None, chance.choice(times)]),
        )
        found = read(tmp_path, "random", filters, includeHeaders="true", maxBytesPerPartition=700)
        assert found == [row for row in rows if wanted(row, filters)]


def test_filters_on_topics_and_partitions_leave_others_out(tmp_path: Path) -> None:
    for name in ("a-0", "a-1", "b-0"):
        written(tmp_path, 5, name)
    every = {"subscribePattern": ".*"}
    assert {task.topic for task in tasks_of(tmp_path, filters=Filters(topics=frozenset("a")), **every)} == {"a"}
    found = tasks_of(tmp_path, filters=Filters(partitions=frozenset([1, 7])), **every)
    assert [(task.topic, task.partition) for task in found] == [("a", 1)]
    assert tasks_of(tmp_path, filters=Filters(topics=frozenset("x")), **every) == []


def test_record_batches_are_bounded(tmp_path: Path) -> None:
    written(tmp_path, 2000, per_batch=20, segment_bytes=1 << 20)
    (task,) = tasks_of(tmp_path)
    reader = TaskReader(task, asked(tmp_path), chunk_bytes=4096, group_bytes=4096)
    sizes = [batch.num_rows for batch in reader.batches()]
    assert sum(sizes) == 2000
    assert max(sizes) < 400


def test_a_batch_longer_than_a_chunk_is_read(tmp_path: Path) -> None:
    log = open_at(tmp_path, segment_bytes=1 << 20)
    for base in (0, 1, 2):
        log.append_as_follower(
            build_batch(2, [Record(None, b"v" * 5000, (), START_MS, base)], base_offset=base), now_ms=0
        )
    log.close()
    assert offsets(read(tmp_path, chunk_bytes=100)) == [0, 1, 2]


def test_timestamps_that_do_not_fit_are_the_largest_that_do(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    record = Record(None, None, (), (1 << 63) - 1, 0)
    log.append_as_follower(build_batch(2, [record]), now_ms=0)
    log.close()
    assert [row[1] for row in read(tmp_path)] == [((1 << 63) - 1) // 1000]


def test_a_record_without_headers_has_none(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    pairs = (("a", b"1"), ("a", None), ("", b""))
    records = [Record(None, None, headers, START_MS, offset) for offset, headers in enumerate([(), pairs, ()])]
    log.append_as_follower(build_batch(2, records), now_ms=0)
    log.close()
    assert [row[5] for row in read(tmp_path, includeHeaders="true")] == [None, pairs, None]
    assert [row[5] for row in read(tmp_path)] == [None, None, None]


# What is broken


def spoil(path: Path, position: int, byte: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[position] = data[position] ^ 0xFF if byte is None else byte
    path.write_bytes(data)


SEGMENT = "orders-0/00000000000000000000.log"


def position_of(root: Path, offset: int) -> int:
    from tests.spark.logs import every_batch

    return next(batch.position for batch in every_batch(root / "orders-0") if batch.base_offset == offset)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A log of one segment and 100 batches, of which number 30 has a wrong checksum."""
    written(tmp_path, 100, segment_bytes=1 << 20)
    spoil(tmp_path / SEGMENT, position_of(tmp_path, 30) + 65)
    return tmp_path


def test_a_broken_batch_ends_the_task_and_is_named(broken: Path) -> None:
    position = position_of(broken, 30)
    with pytest.raises(CorruptBatch, match=rf"orders-0, offsets 30 to 30, byte {position} of .*{SEGMENT}: .*set mode"):
        read(broken)
    found = []
    with pytest.raises(CorruptBatch):
        (task,) = tasks_of(broken)
        for row in rows_of(TaskReader(task, asked(broken))):
            found.append(row[0])
    assert found == [*range(30)]


@pytest.mark.parametrize("chunk_bytes", [1, 500, 1 << 20])
def test_a_broken_batch_is_passed_over_and_told(broken: Path, chunk_bytes: int) -> None:
    found, told = [], []
    for task in tasks_of(broken, maxBytesPerPartition=1000):
        reader = TaskReader(task, asked(broken, mode="skip"), chunk_bytes=chunk_bytes)
        found += offsets(list(rows_of(reader)))
        told += reader.left_out
    assert found == [offset for offset in range(100) if offset != 30]
    (text,) = told
    assert f"offsets 30 to 30, byte {position_of(broken, 30)} of" in text


def quarantined(
    root: Path, chunk_bytes: int = 8 << 20, columns: list[str] | None = None, **options: object
) -> list[dict[str, object]]:
    told = asked(root, mode="quarantine")
    told.columns = columns
    return [
        row
        for task in tasks_of(root, **options)
        for batch in TaskReader(task, told, chunk_bytes=chunk_bytes).batches()
        for row in pa.Table.from_batches([batch]).to_pylist()
    ]


@pytest.mark.parametrize("chunk_bytes", [1, 500, 1 << 20])
def test_a_broken_batch_is_a_row_of_its_own(broken: Path, chunk_bytes: int) -> None:
    position = position_of(broken, 30)
    (row,) = quarantined(broken, chunk_bytes, maxBytesPerPartition=1000)
    size = position_of(broken, 31) - position
    assert row["bytes"] == (broken / SEGMENT).read_bytes()[position : position + size]
    assert "checksum" in str(row.pop("error")) or row
    expected = {"topic": "orders", "partition": 0, "firstOffset": 30, "lastOffset": 30, "position": position}
    assert {name: row[name] for name in expected} == expected
    assert row["file"] == str(broken / SEGMENT)
    assert quarantined(broken, chunk_bytes, ["position", "topic"]) == [{"position": position, "topic": "orders"}]


@pytest.mark.parametrize("chunk_bytes", [1, 500, 1 << 20])
@pytest.mark.parametrize("bytes_max", [1000, 1 << 20])
@pytest.mark.parametrize("segment_bytes", [1500, 1 << 20])
@pytest.mark.parametrize(
    ("offset", "byte", "bits"), [(30, 5, 1), (30, 7, 0x40), (30, 7, 0x10), (30, 0, 0x80), (52, 7, 4)]
)
def test_an_offset_that_no_checksum_covers_hides_nothing(
    offset: int, byte: int, bits: int, segment_bytes: int, bytes_max: int, chunk_bytes: int, tmp_path: Path
) -> None:
    written(tmp_path, 100, segment_bytes=segment_bytes)
    path = max(path for path in (tmp_path / "orders-0").glob("*.log") if int(path.stem) <= offset)
    (position,) = (batch.position for batch in batches(path.read_bytes()) if batch.base_offset == offset)
    spoil(path, position + byte, path.read_bytes()[position + byte] ^ bits)
    with pytest.raises(CorruptBatch, match="cannot be here"):
        for task in tasks_of(tmp_path, maxBytesPerPartition=bytes_max):
            list(rows_of(TaskReader(task, asked(tmp_path), chunk_bytes=chunk_bytes)))


DELTAS = [-1, -(1 << 31), 0, 3, 100_000]
WANTED: list[dict[str, Any]] = [
    {},
    {"startingOffsets": 45},
    {"startingOffsets": 49},
    {"endingOffsets": 47},
    {"endingOffsets": 51},
]


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("wanted", WANTED, ids=str)
def test_a_batch_that_ends_elsewhere_by_its_header_hides_nothing(
    wanted: dict[str, Any], delta: int, tmp_path: Path
) -> None:
    written(tmp_path, 100, per_batch=5, segment_bytes=1 << 20)
    promise(tmp_path, {("orders", 0): 100})
    position = position_of(tmp_path, 45)
    data = bytearray((tmp_path / SEGMENT).read_bytes())
    data[position + 23 : position + 27] = delta.to_bytes(4, "big", signed=True)
    (tmp_path / SEGMENT).write_bytes(data)
    with pytest.raises(CorruptBatch):
        read(tmp_path, **wanted)
    (task,) = tasks_of(tmp_path, **wanted)
    reader = TaskReader(task, asked(tmp_path, mode="skip"))
    first, end = wanted.get("startingOffsets", 0), wanted.get("endingOffsets", 100)
    assert offsets(list(rows_of(reader))) == [each for each in range(first, end) if not 45 <= each < 50]
    assert len(reader.left_out) == 1


@pytest.mark.parametrize("delta", DELTAS)
def test_the_last_batch_ends_elsewhere_by_its_header_and_is_found(delta: int, tmp_path: Path) -> None:
    written(tmp_path, 100, per_batch=5, segment_bytes=1 << 20)
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    position = position_of(tmp_path, 95)
    data = bytearray((tmp_path / SEGMENT).read_bytes())
    data[position + 23 : position + 27] = delta.to_bytes(4, "big", signed=True)
    (tmp_path / SEGMENT).write_bytes(data)
    with pytest.raises(CorruptBatch):
        read(tmp_path)


@pytest.mark.parametrize("byte", [35, 39, 42])
def test_a_time_that_a_header_says_wrong_hides_nothing(byte: int, tmp_path: Path) -> None:
    written(tmp_path, 100, per_batch=5, segment_bytes=1 << 20)
    path, position = tmp_path / SEGMENT, position_of(tmp_path, 45)
    for bit in range(8):
        was = path.read_bytes()[position + byte]
        spoil(path, position + byte, was ^ 1 << bit)
        times = Filters(first_timestamp=START_MS + 46_000)
        with pytest.raises(CorruptBatch):
            read(tmp_path, filters=times)
        with pytest.raises(Unreadable, match="cannot look for the time"):
            read(tmp_path, startingTimestamp=START_MS + 46_000)
        spoil(path, position + byte, was)


def test_what_lies_outside_the_range_is_not_looked_at(broken: Path) -> None:
    assert offsets(read(broken, startingOffsets=31)) == [*range(31, 100)]
    assert offsets(read(broken, endingOffsets=30)) == [*range(30)]
    assert quarantined(broken, startingOffsets=31) == []


@pytest.mark.parametrize("chunk_bytes", [1, 500, 1 << 20])
@pytest.mark.parametrize("byte", [0x00, 0x01, 0x30, 0x7F, 0xFF])
def test_where_no_batch_can_be_found_the_index_knows_the_next(byte: int, chunk_bytes: int, tmp_path: Path) -> None:
    """The first byte of a batch's size is wrong, so the end of it is nowhere."""
    written(tmp_path, 100, segment_bytes=1 << 20)
    spoil(tmp_path / SEGMENT, position_of(tmp_path, 30) + 8, byte)
    if byte == 0:
        spoil(tmp_path / SEGMENT, position_of(tmp_path, 30) + 11, 0)
    with pytest.raises(CorruptBatch, match="orders-0, offsets"):
        read(tmp_path, endOfLog="logEnd", endingOffsets=100, chunk_bytes=chunk_bytes)
    found = offsets(read(tmp_path, mode="skip", chunk_bytes=chunk_bytes, endingOffsets=100))
    missing = sorted(set(range(100)) - set(found))
    assert 30 in missing
    assert len(missing) <= 3
    assert found == sorted(found)
    for pieces in (1, 5):
        again = offsets(read(tmp_path, mode="skip", minPartitions=pieces, endingOffsets=100, chunk_bytes=chunk_bytes))
        assert again == found
    rows = quarantined(tmp_path, chunk_bytes, endingOffsets=100)
    assert len(rows) == 1
    assert rows[0]["firstOffset"] is None
    assert rows[0]["position"] == position_of_row(rows[0])


def position_of_row(row: dict[str, object]) -> object:
    data = Path(str(row["file"])).read_bytes()
    shown = row["bytes"]
    assert isinstance(shown, bytes)
    return data.index(shown)


def test_a_segment_that_was_cut_is_no_silent_gap(tmp_path: Path) -> None:
    written(tmp_path, 100)
    paths = sorted((tmp_path / "orders-0").glob("*.log"))
    assert len(paths) > 3
    paths[1].write_bytes(paths[1].read_bytes()[:-10])
    with pytest.raises(CorruptBatch, match=paths[1].name):
        read(tmp_path)
    last_of_it = int(paths[2].name[:20]) - 1
    assert offsets(read(tmp_path, mode="skip")) == [offset for offset in range(100) if offset != last_of_it]


def test_a_segment_that_was_cut_between_batches_is_data_loss(tmp_path: Path) -> None:
    written(tmp_path, 100)
    paths = sorted((tmp_path / "orders-0").glob("*.log"))
    third = list(batches(paths[1].read_bytes()))[2]
    paths[1].write_bytes(paths[1].read_bytes()[: third.position])
    with pytest.raises(DataLoss, match=rf"{paths[1].name} has been cut: its index names batches behind its end"):
        read(tmp_path)
    (task,) = tasks_of(tmp_path)
    reader = TaskReader(task, asked(tmp_path, failOnDataLoss="false"))
    missing = set(range(100)) - set(offsets(list(rows_of(reader))))
    assert missing == {*range(third.base_offset, int(paths[2].stem))}
    assert len(reader.left_out) == 1
    assert read(tmp_path, endingOffsets=third.base_offset + 1) != []  # nobody has come to its end
    paths[1].with_suffix(".index").unlink()  # where it may have been cleaning nothing is said
    assert set(offsets(read(tmp_path))) == set(range(100)) - missing


def test_an_offset_that_moves_the_last_batch_behind_the_end_is_told(tmp_path: Path) -> None:
    written(tmp_path, 100, segment_bytes=1 << 20)
    promise(tmp_path, {("orders", 0): 100})
    (tmp_path / CLEANER_OFFSETS).write_bytes(format_offsets({}))
    spoil(tmp_path / SEGMENT, position_of(tmp_path, 99) + 5, 1)
    (task,) = tasks_of(tmp_path)
    reader = TaskReader(task, asked(tmp_path))
    assert offsets(list(rows_of(reader))) == [*range(99)]
    (told,) = reader.noticed
    assert told.startswith("orders-0: 1 of the offsets 0 to 99 have no record")


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_offsets_without_a_record_are_told_where_the_cleaner_has_never_been(chunk_bytes: int, tmp_path: Path) -> None:
    written(tmp_path, 100)
    paths = sorted((tmp_path / "orders-0").glob("*.log"))
    (tmp_path / CLEANER_OFFSETS).write_bytes(format_offsets({("other", 0): 5}))

    def noticed(filters: Filters | None = None, **options: object) -> list[str]:
        told = []
        for task in tasks_of(tmp_path, filters=filters, **options):
            reader = TaskReader(task, asked(tmp_path, **options), filters, chunk_bytes=chunk_bytes)
            list(reader.batches())
            told += reader.noticed
        return told

    for pieces in (1, 7):
        assert noticed(minPartitions=pieces, startingOffsets=3, endingOffsets=97) == []
    lost = paths[3]
    first, end = int(lost.stem), int(paths[4].stem)
    for path in lost.parent.glob(f"{lost.stem}.*"):
        path.unlink()
    (told,) = noticed()
    wanted = (
        f"orders-0: {end - first} of the offsets 0 to 99 have no record, although the cleaner has no note of the log"
    )
    assert told.startswith(wanted)
    assert noticed(startingOffsets=end) == []
    assert noticed(Filters(first_timestamp=START_MS + 60_000)) == []
    (tmp_path / CLEANER_OFFSETS).write_bytes(format_offsets({}))
    assert noticed() == [told]
    (tmp_path / CLEANER_OFFSETS).write_bytes(format_offsets({("orders", 0): 5}))
    assert noticed() == []
    (tmp_path / CLEANER_OFFSETS).unlink()
    assert noticed() == []


def test_a_topic_that_was_made_anew_since_planning_is_data_loss(tmp_path: Path) -> None:
    written(tmp_path, 10)
    metadata = tmp_path / "orders-0/partition.metadata"
    metadata.write_bytes(format_topic_id(b"1" * 16))
    (task,) = tasks_of(tmp_path)
    assert offsets(list(rows_of(TaskReader(task, asked(tmp_path))))) == [*range(10)]
    metadata.write_bytes(format_topic_id(b"2" * 16))
    with pytest.raises(DataLoss, match="orders-0: the topic was deleted and made anew since the query was planned"):
        list(TaskReader(task, asked(tmp_path)).batches())
    reader = TaskReader(task, asked(tmp_path, failOnDataLoss="false"))
    assert list(reader.batches()) == []
    assert len(set(reader.left_out)) == 1
    metadata.unlink()  # where an id is missing nothing is compared
    assert offsets(list(rows_of(TaskReader(task, asked(tmp_path))))) == [*range(10)]


def test_what_has_gone_since_planning_is_data_loss(tmp_path: Path) -> None:
    written(tmp_path, 100)
    (task,) = tasks_of(tmp_path)
    paths = sorted((tmp_path / "orders-0").glob("*.log"))
    paths[0].rename(f"{paths[0]}.deleted")
    assert offsets(list(rows_of(TaskReader(task, asked(tmp_path))))) == [*range(100)]
    Path(f"{paths[0]}.deleted").unlink()
    with pytest.raises(DataLoss, match=r"begins at 0 has gone since .*run it again; set failOnDataLoss"):
        list(TaskReader(task, asked(tmp_path)).batches())
    reader = TaskReader(task, asked(tmp_path, failOnDataLoss="false"))
    assert offsets(list(rows_of(reader))) == [*range(int(paths[1].name[:20]), 100)]
    for mode in ("fail", "quarantine", "batches"):  # whatever the table is, it is told, to whoever wants to know
        told: list[str] = []
        list(read_task(task, asked(tmp_path, failOnDataLoss="false", mode=mode), tell=told.append))
        assert ["left out orders-0: the segment that begins at 0 has gone" in text for text in told] == [True]
    assert len(reader.left_out) == 1
    assert "has gone" in reader.left_out[0]
    paths[1].write_bytes(paths[1].read_bytes()[:-100])
    paths[0].write_bytes(b"")
    with pytest.raises(DataLoss, match="has gone since"):
        list(TaskReader(task, asked(tmp_path)).batches())
    Path(f"{paths[0]}").unlink()
    (task,) = tasks_of(tmp_path)
    paths[2].write_bytes(paths[2].read_bytes()[:-100])
    with pytest.raises(DataLoss, match="has become shorter"):
        list(rows_of(TaskReader(task, asked(tmp_path, mode="skip"))))


@pytest.mark.parametrize("what", ["goes", "is cut"])
def test_what_goes_while_it_is_read_is_data_loss(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, 100)
    (task,) = tasks_of(tmp_path)
    paths = sorted((tmp_path / "orders-0").glob("*.log"))
    open_file = ReadOnlyStorage.open

    def meddled(self: ReadOnlyStorage, path: str, *, create: bool = False) -> Any:
        if path.endswith(paths[1].name) and paths[1].exists():
            if what == "goes":
                paths[1].unlink()
            else:
                paths[1].write_bytes(paths[1].read_bytes()[:500])
        return open_file(self, path, create=create)

    monkeypatch.setattr(ReadOnlyStorage, "open", meddled)
    reader = TaskReader(task, asked(tmp_path, failOnDataLoss="false"))
    missing = set(range(100)) - set(offsets(list(rows_of(reader))))
    assert missing == {*range(int(paths[1].name[:20]), int(paths[2].name[:20]))}
    assert len(reader.left_out) == 1
    written(tmp_path / "again", 100)
    shutil.copy(tmp_path / "again/orders-0" / paths[1].name, paths[1])
    with pytest.raises(DataLoss, match="has gone since" if what == "goes" else "has become shorter"):
        list(TaskReader(task, asked(tmp_path)).batches())


def test_what_is_written_after_planning_is_of_the_next_query(tmp_path: Path) -> None:
    written(tmp_path, 10, segment_bytes=1 << 20)
    (task,) = tasks_of(tmp_path)
    written(tmp_path, 10, segment_bytes=1 << 20)
    assert offsets(list(rows_of(TaskReader(task, asked(tmp_path))))) == [*range(10)]
    assert offsets(read(tmp_path)) == [*range(20)]


@pytest.mark.parametrize("seed", range(12))
def test_transactions_are_known_without_their_index(seed: int, tmp_path: Path) -> None:
    """The index of the last segment may be lost in a crash; broken ones are made anew, in memory."""
    log = RandomLog(tmp_path, 100 + seed)
    for _ in range(3):
        log.grow()
        log.open()
    log.log.close()
    wanted = one_by_one(log.path, read_committed=True)
    told = {"includeHeaders": "true", "kafka_isolation_level": "read_committed"}
    last = max(log.path.glob("*.log"))
    last.with_suffix(".txnindex").unlink(missing_ok=True)
    assert read(tmp_path, "random", **told) == wanted
    for path in log.path.glob("*.txnindex"):
        path.write_bytes(path.read_bytes() + b"\xff" * (TXN_ENTRY.size - 1))
    for path in log.path.glob("*.snapshot"):
        path.write_bytes(b"\0\1broken")
    before = tree(tmp_path)
    assert read(tmp_path, "random", **told) == wanted
    assert tree(tmp_path) == before

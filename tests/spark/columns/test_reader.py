"""Records as columns: what real Kafka wrote means what Kafka says, and each rule of the reader on its own."""

from __future__ import annotations

import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

from minibroker.errors import CorruptCrc, DecompressionLimit, InvalidMagic, InvalidRecordCount, ProtocolError, Truncated
from minibroker.log.batches import batches
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from minibroker.log.formats import APPEND_TIME, CREATE_TIME, HEADER_BYTES
from minibroker.log.index import TransactionIndex
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.records import Record
from minibroker.spark.columns import arrays as column_arrays
from minibroker.spark.columns import opening as column_opening
from minibroker.spark.columns import reader as columns_module
from minibroker.spark.columns.batches import Units
from minibroker.spark.columns.opening import COVERED_FROM, Opened, open_units
from minibroker.spark.columns.reader import ColumnReader
from minibroker.spark.columns.record_starts import _Hops, find_starts
from minibroker.spark.columns.varints import BufferView
from tests import goldens
from tests.log.golden_batches import TIMESTAMP_TYPES, records_of
from tests.spark.columns.cases import both_ways, few_are_many, one_by_one, rows_of, side_by_side

MIB = 1024 * 1024
THREE = [Record(b"k%d" % n, b"value %d" % n, (("name", b"%d" % n),), 1600000000000 + n) for n in range(3)]
GOLDEN = goldens.records("records")


def three(base_offset: int, magic: int = 2, **options: Any) -> bytes:
    return build_batch(magic, THREE, base_offset=base_offset, **options)


def offsets(chunk: bytes, **options: Any) -> list[int]:
    return [offset for columns in ColumnReader(chunk, **options) for offset in columns.offsets.tolist()]


# What Kafka wrote


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in GOLDEN if "broken" not in case])
def test_columns_are_what_kafka_reads(case: dict[str, Any]) -> None:
    shown = [
        (
            record.offset,
            record.timestamp,
            TIMESTAMP_TYPES[batch["timestampType"]],
            record.key,
            record.value,
            list(record.headers),
        )
        for batch in case["batches"]
        for record in records_of(batch)
    ]
    rows, errors = both_ways(bytes.fromhex(case["hex"]), control=True)
    assert ([row[:6] for row in rows], errors) == (shown, [])


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in GOLDEN if "broken" in case])
def test_what_kafka_finds_broken_is_refused(case: dict[str, Any]) -> None:
    _, errors = both_ways(bytes.fromhex(case["hex"]), strict=True)
    expected = {"crc": CorruptCrc, "tail": Truncated}[case["broken"]]
    assert [kind for kind, *_ in errors] == [expected] * len(errors)
    assert errors


@pytest.mark.parametrize("name", goldens.LOG_DIRECTORIES)
def test_logs_of_brokers_read_as_their_records(name: str) -> None:
    segments = {path: data for path, data in goldens.log_files(name).items() if path.endswith(".log")}
    assert segments
    total = 0
    for data in segments.values():
        rows, errors = side_by_side(data, control=True)
        assert (rows, errors) == one_by_one(data, control=True)
        total += len(rows)
    assert total > 100


@pytest.mark.parametrize("name", goldens.LOG_DIRECTORIES)
def test_transactions_that_kafka_aborted_are_left_out(name: str) -> None:
    """The index beside each segment is Kafka's own list of them."""
    files = goldens.log_files(name)
    hidden_rows = 0
    for directory in {path.rpartition("/")[0] for path, data in files.items() if path.endswith(".txnindex") and data}:
        # A transaction may be in one segment and its marker, with the entry, in the next.
        paths = sorted(path for path in files if path.rpartition("/")[0] == directory)
        log = b"".join(files[path] for path in paths if path.endswith(".log"))
        storage = MemoryStorage(lambda: 0)
        entries = []
        for path in paths:
            if path.endswith(".txnindex") and files[path]:
                storage.make_directory(directory)
                storage.open(path, create=True).append([files[path]])
                entries += TransactionIndex(storage, path).entries()
        aborted = [(entry.producer_id, entry.first_offset) for entry in entries]
        rows, errors = both_ways(log, aborted=aborted)
        assert (rows, errors) == one_by_one(log, aborted=aborted)
        hidden = {row[0] for row in side_by_side(log)[0]} - {row[0] for row in rows}
        assert all(any(entry.first_offset <= at <= entry.last_offset for entry in entries) for at in hidden)
        hidden_rows += len(hidden)
    assert hidden_rows or name.startswith("zk28"), "nothing was aborted"


# Which rows


def test_only_what_was_asked_for_is_made() -> None:
    [columns] = ColumnReader(three(0), keys=False, values=False)
    assert len(columns) == 3
    assert (columns.keys, columns.values, columns.headers) == (None, None, None)
    assert (columns.leader_epochs, columns.producer_ids, columns.positions) == (None, None, None)


def test_origins_are_those_of_the_batch() -> None:
    first = three(0, partition_leader_epoch=4, producer_id=9, producer_epoch=0, base_sequence=0)
    [columns] = ColumnReader(first + three(3, 1), origins=True)
    assert columns.leader_epochs is not None
    assert columns.producer_ids is not None
    assert columns.positions is not None
    assert columns.leader_epochs.tolist() == [4] * 3 + [-1] * 3
    assert columns.producer_ids.tolist() == [9] * 3 + [-1] * 3
    assert columns.positions.tolist() == [0] * 3 + [batch.position for batch in batches(first + three(3, 1))][1:]


def test_ranges_cut_within_batches_and_leave_others_unopened() -> None:
    broken = bytearray(three(6, codec=GZIP))
    broken[-1] ^= 1  # behind the records: only the checksum notices
    chunk = three(0) + three(3, codec=LZ4) + bytes(broken)
    assert offsets(chunk, first_offset=2, end_offset=5) == [2, 3, 4]
    assert offsets(chunk, first_offset=4, end_offset=6) == [4, 5]
    with pytest.raises(CorruptCrc):
        offsets(chunk, first_offset=4, end_offset=7)


def test_timestamps_cut_too() -> None:
    times = {"first_timestamp": 1600000000001, "end_timestamp": 1600000000002}
    assert offsets(three(0) + three(3, 1) + three(6, 1, codec=GZIP) + three(9, 0), **times) == [1, 4, 7]
    append_time = three(0, timestamp_type=1, max_timestamp=1600000000009)
    assert offsets(append_time, first_timestamp=1600000000009) == [0, 1, 2]
    assert offsets(append_time, end_timestamp=1600000000009) == []


def marker(offset: int, commit: bool, producer: int = 5) -> bytes:
    return build_transaction_marker(
        commit=commit, offset=offset, timestamp=1, producer_id=producer, producer_epoch=0, coordinator_epoch=0
    )


def test_read_committed_leaves_out_what_was_aborted_until_its_marker() -> None:
    def part(offset: int, producer: int = 5) -> bytes:
        return three(offset, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)

    chunk = (
        part(0) + part(3, 6) + three(6) + marker(9, False) + part(10) + marker(13, True) + part(14) + marker(17, False)
    )
    assert offsets(chunk) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 14, 15, 16]
    assert offsets(chunk, aborted=[(5, 0), (5, 14)]) == [3, 4, 5, 6, 7, 8, 10, 11, 12]
    # The same whatever is read at once, and where the range begins behind a marker.
    assert offsets(chunk, aborted=[(5, 0), (5, 14)], group_bytes=1) == [3, 4, 5, 6, 7, 8, 10, 11, 12]
    assert offsets(chunk, aborted=[(5, 0), (5, 14)], first_offset=10) == [10, 11, 12]
    assert offsets(chunk, aborted=[(5, 0)], control=True, first_offset=9, end_offset=14) == [9, 10, 11, 12, 13]


@pytest.mark.parametrize("rows_max", [1, 1 << 19])
def test_the_position_stays_before_what_is_not_handed_over(rows_max: int) -> None:
    chunk = three(0) + three(3)
    with mock.patch.object(column_opening, "ROWS_MAX", rows_max), mock.patch.object(columns_module, "CHUNK_ROWS", 2):
        reader = ColumnReader(chunk, group_bytes=1)
        rows = 0
        for columns in reader:
            rows += len(columns)
            assert reader.position <= rows // 3 * len(three(0))
        assert (rows, reader.position, reader.next_offset) == (6, len(chunk), 6)


def test_rows_keep_nothing_alive_but_themselves() -> None:
    [columns] = ColumnReader(three(0))
    for array in (columns.offsets, columns.timestamps):
        assert array.base is None or array.base.nbytes == array.nbytes


def test_next_offset_passes_what_has_no_rows() -> None:
    chunk = three(0) + build_batch(2, [], base_offset=3, last_offset=8) + marker(9, True)
    reader = ColumnReader(chunk + three(10)[:-1])
    assert sum(map(len, reader)) == 3
    assert (reader.position, reader.next_offset) == (len(chunk), 10)


# Errors


def section(records: bytes, count: int, codec: int = NONE, **options: Any) -> bytes:
    """Return a v2 batch whose header promises `count` records and that holds these bytes."""
    batch = bytearray(build_batch(2, [], **options) + (compress(codec, records) if codec else records))
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] |= codec
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    return bytes(batch)


def wrapper(inner: bytes, magic: int = 1, offset: int = 2, codec: int = GZIP) -> bytes:
    """Return a message that says it is the wrapper of `inner`."""
    message = bytearray(build_batch(magic, [Record(None, compress(codec, inner), (), 5, offset)]))
    message[17] |= codec
    return bytes(message)


def record(fields: str) -> bytes:
    """Return a v2 record: its size, then the fields given in hex."""
    content = bytes.fromhex(fields)
    assert len(content) < 64
    return bytes([2 * len(content)]) + content


RECORDS = three(0)[61:]
PLAIN = build_batch(2, [each._replace(headers=()) for each in THREE])[61:]
LONGEST = "ff" * 9 + "01"  # a varint of 64 bits
BROKEN = {
    "one record too many": section(RECORDS, 2),
    "one record too few": section(RECORDS, 4),
    "one record too many, packed": section(RECORDS, 2, LZ4),
    "one record too few, packed": section(RECORDS, 4, LZ4),
    "a count below zero": section(RECORDS, -1),
    "records where the count is zero": section(RECORDS, 0),
    "a record ends before its fields": section(record("000000010100") + record("00000001"), 2),
    "fields end before their record": section(record("000000010100") + record("00000201010000"), 2),
    "the last record goes on behind the end": section(PLAIN[:-1], 3),
    "bytes behind the last record": section(PLAIN + b"\0", 3),
    "a size below zero": section(b"\x01\0\0\0\x01\x01\0", 1),
    "a size of zero": section(b"\0" * 14, 2),
    "a timestamp of eleven bytes": section(record("00" + "ff" * 10 + "00" + "000101" + "00"), 1),
    "a timestamp of 65 bits": section(record("00" + "ff" * 9 + "02" + "00010100"), 1),
    "an offset of six bytes": section(record("0000" + "ff" * 5 + "00" + "010100"), 1),
    "an offset of 33 bits": section(record("0000" + "ffffffff1f" + "010100"), 1),
    "a key behind the end": section(record("000000fe03" + "0100"), 1),
    "a header count below zero": section(record("000000010101"), 1),
    "more headers than there are": section(record("000000010104" + "0001"), 1),
    "very many headers": section(record("0000000101" + "feffffff0f"), 1),
    "a header's name is null": section(record("000000010102" + "0101"), 1),
    "a header goes on behind the record": section(record("000000010102" + "0008") + PLAIN, 4),
    "a wrapper's offset below the last within": wrapper(three(0, 1), offset=1),
    "a wrapper's offset below zero": wrapper(three(0, 1), offset=3).replace((3).to_bytes(8, "big"), b"\xff" * 8, 1),
    "another format within": wrapper(three(0, 1)[:41] + three(0, 0), offset=9),
    "another format in the wrapper": wrapper(three(0, 0)),
    "no format at all within": wrapper(three(0, 1)[:16] + b"\x05" + three(0, 1)[17:]),
    "a wrapper in a wrapper": wrapper(wrapper(three(0, 1))),
    "a wrapper of nothing": wrapper(b"", codec=SNAPPY),
    "a message cut off within": wrapper(three(0, 1)[:-1]),
    "a short message within": wrapper(three(0, 1)[:-40] + bytes(8) + (5).to_bytes(4, "big") + b"\0" * 20),
    "an unknown codec": section(RECORDS, 3, 0).replace(b"\0\0\xff\xff\xff\xff", b"\0\x05\xff\xff\xff\xff", 1),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_refused_as_record_by_record(name: str) -> None:
    chunk = three(0) + BROKEN[name] + three(9)
    rows, errors = both_ways(chunk, check_crc=False)
    assert (rows, errors) == one_by_one(chunk, check_crc=False)
    assert len(errors) == 1
    assert len(rows) == 6


RANGES: list[dict[str, Any]] = [
    {},
    {"first_offset": 12},
    {"first_offset": 14, "end_offset": 16},
    {"end_offset": 12},
    {"first_timestamp": 1600000000001},
    {"end_timestamp": 1600000000002},
    {"first_offset": 11, "end_offset": 14, "first_timestamp": 1600000000001, "end_timestamp": 1600000000002},
]


@pytest.mark.parametrize("timestamp_type", [CREATE_TIME, APPEND_TIME])
@pytest.mark.parametrize(("magic", "codec"), [(2, NONE), (2, GZIP), (1, GZIP), (0, GZIP)])
@pytest.mark.parametrize("wanted", RANGES, ids=str)
def test_no_flipped_bit_under_the_checksum_hides_a_row(
    wanted: dict[str, Any], magic: int, codec: int, timestamp_type: int
) -> None:
    """The headers of three batches, of offsets 10 to 18: every bit of the second one, whatever the query leaves out."""
    stamped = {} if timestamp_type == CREATE_TIME else {"timestamp_type": 1, "max_timestamp": 1600000000001}
    records = [Record(b"k", b"v", (), 1600000000000 + n) for n in range(3)]
    built = [build_batch(magic, records, base_offset=base, codec=codec, **stamped) for base in (10, 13, 16)]
    chunk, begin = b"".join(built), len(built[0])
    whole = offsets(chunk, **wanted)
    for bit in range((begin + COVERED_FROM[magic]) * 8, (begin + (HEADER_BYTES if magic == 2 else 34)) * 8):
        spoiled = bytearray(chunk)
        spoiled[bit // 8] ^= 1 << bit % 8
        try:
            assert offsets(bytes(spoiled), **wanted) == whole, f"byte {bit // 8 - begin}, bit {bit % 8}"
        except ProtocolError:
            continue


def test_messages_within_have_checksums_of_their_own() -> None:
    inner = bytearray(three(0, 1))
    inner[-1] ^= 1
    chunk = wrapper(bytes(inner))
    rows, errors = both_ways(chunk)
    assert (rows, errors) == one_by_one(chunk)
    assert [kind for kind, *_ in errors] == [CorruptCrc]


def test_batches_that_are_hidden_have_checksums_too() -> None:
    chunk = bytearray(three(0) + marker(3, False))
    chunk[-1] ^= 1
    for aborted in ([], [(5, 0)]):
        rows, errors = both_ways(bytes(chunk), aborted=aborted)
        assert (rows, errors) == one_by_one(bytes(chunk), aborted=aborted)
        assert [kind for kind, *_ in errors] == [CorruptCrc]


STRANGE = {
    "a timestamp of ten bytes": section(record("00" + LONGEST + "00010100"), 1),
    "a timestamp beyond 64 bits": section(
        record("00" + "fe" + "ff" * 8 + "01" + "00010100"), 1, base_offset=(1 << 63) - 1
    ),
    "numbers longer than they need be": section(record("00" + "8000" + "808000" + "8180808000" + "8100" + "8000"), 1),
    "null in many ways": section(record("000000" + "0505" + "02" + "0007"), 1),
    "attributes that nobody knows": section(record("ff0000010100"), 1),
    "offsets that fall": section(record("000004010100") + record("000002010100"), 2),
    "an offset beyond 64 bits": section(record("0000" + "feffffff0f" + "010100"), 1, base_offset=(1 << 63) - 1),
    "nothing, and yet a codec": build_batch(2, [], codec=GZIP),
}


@pytest.mark.parametrize("name", STRANGE)
def test_what_is_only_strange_is_read_as_record_by_record(name: str) -> None:
    chunk = three(0) + STRANGE[name] + three(9)
    rows, errors = both_ways(chunk, check_crc=False)
    assert (rows, errors) == one_by_one(chunk, check_crc=False)
    assert errors == []
    assert len(rows) > 6 or "nothing" in name


def test_reading_goes_on_behind_a_broken_batch() -> None:
    broken = bytearray(three(3))
    broken[-2] ^= 1
    chunk = three(0) + bytes(broken) + three(6)
    reader = ColumnReader(chunk)
    assert next(reader).offsets.tolist() == [0, 1, 2]
    assert (reader.position, reader.next_offset) == (len(three(0)), 3)
    with pytest.raises(CorruptCrc) as caught:
        next(reader)
    assert (caught.value.position, caught.value.path) == (len(three(0)) + 17, "BatchHeader.crc")
    assert reader.failed is not None
    assert (reader.failed.position, reader.failed.end_position) == (len(three(0)), 2 * len(three(0)))
    assert (reader.failed.base_offset, reader.failed.last_offset) == (3, 5)
    assert (reader.position, reader.next_offset) == (reader.failed.end_position, 6)
    assert next(reader).offsets.tolist() == [6, 7, 8]
    with pytest.raises(StopIteration):
        next(reader)


def test_many_broken_batches_are_not_read_again_and_again() -> None:
    broken = bytearray(three(0))
    broken[61] = 1
    count = 400
    looked_at = []

    def open_some(view: memoryview, units: Units, *rest: Any) -> Opened:
        looked_at.append(len(units))
        return open_units(view, units, *rest)

    with mock.patch.object(columns_module, "open_units", open_some):
        rows, errors = side_by_side(bytes(broken) * count, check_crc=False)
    assert (rows, len(errors)) == ([], count)
    assert sum(looked_at) < 3 * count


def test_where_no_batch_can_be_found_all_ends() -> None:
    reader = ColumnReader(three(0) + bytes(16) + b"\x09" + bytes(70))
    assert next(reader).offsets.tolist() == [0, 1, 2]
    with pytest.raises(ProtocolError):
        next(reader)
    assert reader.failed is None
    assert list(reader) == []
    zeros = three(0) + (100).to_bytes(12, "big") + bytes(4) + b"\x09" + bytes(90)
    with pytest.raises(InvalidMagic) as caught:
        list(ColumnReader(zeros))
    assert caught.value.position == len(three(0)) + 16


@pytest.mark.parametrize(("codec", "limit_bytes"), [(GZIP, 1000), (ZSTD, 1000)])
def test_unpacking_stops_at_the_limit(codec: int, limit_bytes: int) -> None:
    bomb = build_batch(2, [Record(None, bytes(64 * MIB))], codec=codec)
    tracemalloc.start()
    with pytest.raises(DecompressionLimit):
        list(ColumnReader(bomb, limit_bytes=limit_bytes, check_crc=False))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * MIB


def test_a_count_that_cannot_be_makes_no_room() -> None:
    batch = bytearray(three(0))
    batch[57:61] = (0x7FFFFFFF).to_bytes(4, "big")
    tracemalloc.start()
    with pytest.raises(InvalidRecordCount):
        list(ColumnReader(batch, check_crc=False))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * MIB


@pytest.mark.slow
def test_a_batch_of_very_many_records_takes_little_memory() -> None:
    count = 30_000
    batch = bytearray(build_batch(2, []) + compress(ZSTD, bytes([12, 0, 0, 0, 1, 1, 0]) * count))
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] |= ZSTD
    batch[57:61] = count.to_bytes(4, "big")
    peaks = []
    for rows_max in (count, 1000):
        with (
            mock.patch.object(column_opening, "ROWS_MAX", rows_max),
            mock.patch.object(columns_module, "CHUNK_ROWS", 500),
        ):
            tracemalloc.start()
            assert sum(len(columns) for columns in ColumnReader(batch, check_crc=False)) == count
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[1] < MIB < 3 * MIB < peaks[0]


def test_an_offset_far_below_zero_in_a_wrapper_is_counted_from_all_the_same() -> None:
    inner = bytearray(three(0, 1))
    inner[:8] = inner[-len(inner) // 3 :][:8] = b"\x80" + bytes(7)
    for inner_end in (len(inner), len(inner) // 3):
        wrapper = bytearray(build_batch(1, [Record(None, compress(GZIP, inner[:inner_end]), (), 5, 50)]))
        wrapper[17] |= GZIP
        rows, errors = both_ways(bytes(wrapper), check_crc=False)
        assert (rows, errors) == one_by_one(bytes(wrapper), check_crc=False)
        assert [row[0] for row in rows][-1:] == [50]


def test_a_limit_beyond_what_a_column_can_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="limit_bytes"):
        ColumnReader(b"", limit_bytes=1 << 31)


# Many records


def sizes_alike(chance: random.Random, index: int) -> bytes:
    return chance.randbytes(200)


def sizes_of_all_kinds(chance: random.Random, index: int) -> bytes:
    return chance.randbytes(int(chance.paretovariate(0.8) * 20) % 30000)


def zeros(chance: random.Random, index: int) -> bytes:
    return bytes(chance.randrange(300))


def tiny(chance: random.Random, index: int) -> bytes:
    return b"\x0c\0\0" * chance.randrange(2)


def records_in_records(chance: random.Random, index: int) -> bytes:
    """A copy of another topic, as batches: what looks like the start of a record often is one, in a value."""
    return build_batch(2, [Record(b"k", chance.randbytes(60), (), 5, n) for n in range(8)])


@pytest.mark.parametrize("value", [sizes_alike, sizes_of_all_kinds, zeros, tiny, records_in_records])
@pytest.mark.parametrize("codec", [NONE, LZ4])
def test_large_batches_read_as_their_records(value: Callable[[random.Random, int], bytes], codec: int) -> None:
    chance = random.Random(8)
    data, offset = b"", 0
    for count in (8000, 1, 300):
        rows = [
            Record(
                None if n % 7 == 0 else b"%d" % n,
                value(chance, n),
                (("a", b"1"),) * (n % 5 == 0),
                n * chance.randrange(90),
                offset + n,
            )
            for n in range(count)
        ]
        data += build_batch(2, rows, codec=codec)
        offset += count
    assert side_by_side(data) == one_by_one(data)


def test_a_false_beginning_is_not_believed() -> None:
    """Within the values lie records, one behind the other, as if they were the batch's own."""
    chance = random.Random(3)
    inner = build_batch(2, [Record(b"k", b"v" * 20, (), 5, n) for n in range(400)])[61:]
    data = build_batch(2, [Record(None, inner[chance.randrange(9000) :], (), 5, n) for n in range(300)])
    section = data[61:]
    walked_again = []

    def alone(step: _Hops, begin: int, end: int) -> list[int] | None:
        walked_again.append((begin, end))
        return walk_alone(step, begin, end)

    walk_alone = _Hops.alone
    with few_are_many(), mock.patch.object(_Hops, "alone", alone):
        found = find_starts(BufferView(section), 2, np.array([0]), np.array([len(section)]), np.array([300]))
    assert walked_again[1:] == [(0, len(section))], "nothing misled it"  # behind the lane at the end of the buffer
    assert (len(found.places), found.counts.tolist(), found.broken.tolist()) == (300, [300], [False])
    assert side_by_side(data) == one_by_one(data)


def test_many_headers_in_one_record_take_no_step_of_all() -> None:
    many = tuple(("h", b"%d" % n) for n in range(5000))
    data = build_batch(2, [Record(b"k", b"v", many, 5), Record(b"k", b"v", (), 5), Record(b"k", b"v", many[:40], 5)])
    assert side_by_side(data) == one_by_one(data)


def test_headers_come_in_the_order_of_their_records() -> None:
    names = [("a", "b", "a"), (), ("c",), ("d", "e"), ("f", "g", "h")]
    rows = [Record(None, None, tuple((name, b"%d" % n) for name in each), 5) for n, each in enumerate(names)]
    found, _ = both_ways(build_batch(2, rows))
    assert [tuple(name for name, _ in row[5]) for row in found] == names


def test_names_that_are_no_text_are_mended_as_in_single_records() -> None:
    data = build_batch(2, [Record(b"k", b"v", (("name", b"1"),), 5)] * 3).replace(b"name", b"n\xff\xc3e", 1)
    [columns] = ColumnReader(data, headers=True, origins=True, check_crc=False)
    assert [row[5][0][0] for row in rows_of(columns)] == ["n��e", "name", "name"]


def test_planes_too_long_for_31_bits_are_copied_from_all_the_same() -> None:
    data = b"".join(three(base, codec=codec) for base, codec in ((0, NONE), (3, GZIP)))
    data += build_batch(2, [Record(None, b"long" * 50, (), 5, 6), Record(b"", None, (), 5, 7)])
    expected, _ = one_by_one(data)
    reader = ColumnReader(data, headers=True, origins=True)
    with (
        mock.patch.object(column_arrays, "OFFSET_MAX", 10),
        mock.patch.object(column_arrays.pa, "large_binary", wraps=column_arrays.pa.large_binary) as large_binary,
    ):
        assert [row for columns in reader for row in rows_of(columns)] == expected
    assert large_binary.called


def test_groups_stay_small_however_well_batches_are_packed() -> None:
    data = b"".join(build_batch(2, [Record(None, bytes(MIB), (), 5, n)], codec=ZSTD) for n in range(40))
    sizes = [len(columns) for columns in ColumnReader(data, group_bytes=4 * MIB)]
    assert sizes == [4] * 10


def test_nothing_of_the_broker_loads_numpy() -> None:
    code = "import sys, minibroker.broker.broker, minibroker.cli, minibroker.embedded, minibroker.client.consumer as _;"
    code += "print([name for name in sys.modules if name.split('.')[0] in ('numpy', 'pyarrow')])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_compressed_wrappers_at_offset_zero_count_from_zero() -> None:
    """A librdkafka of old leaves the wrapper's offset at 0; then Kafka's readers take the offsets within."""
    wrapper = bytearray(three(0, 1, codec=GZIP))
    wrapper[:8] = bytes(8)
    assert offsets(bytes(wrapper)) == [0, 1, 2]
    assert offsets(bytes(wrapper), first_offset=1) == [1, 2]

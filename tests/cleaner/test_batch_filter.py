"""What compaction keeps of a batch: as Kafka does it, and what that is for."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.cleaner.batch_filter import BatchFilter, Filtered, last_batches
from minibroker.cleaner.offset_map import OffsetMap
from minibroker.cleaner.transactions import Transactions
from minibroker.errors import ProtocolError
from minibroker.in_pieces import finish
from minibroker.log.batches import Batch, batches
from minibroker.log.build import build_batch, build_transaction_marker
from minibroker.log.compression import GZIP, NONE
from minibroker.log.formats import APPEND_TIME, CREATE_TIME, LEADER_CHANGE
from minibroker.log.producers import ProducerStates
from minibroker.log.records import Record
from minibroker.stored.producers import AbortedTxn
from tests import goldens
from tests.cleaner.random_batches import NOW_MS, RETENTION_MS, Case
from tests.cleaner.test_keys import TURNS
from tests.log.golden_batches import header_in, header_of, records_of
from tests.sealing import seal

CASES = goldens.records("compact")
MAP_BYTES = 1 << 20
FAR = 1 << 40
HORIZON_MS = 1500  # what `filtered` sets
ROWS = [
    Record(b"a", b"1", (), 100, 10),
    Record(b"b", b"2", (("h", None),), 300, 11),
    Record(b"c", None, (), 200, 12),
    Record(None, b"4", (), 250, 13),
]


def mapped(latest: Iterable[tuple[bytes, int]], end_offset: int = FAR) -> OffsetMap:
    offsets = OffsetMap(MAP_BYTES)
    for key, offset in latest:
        assert offsets.put(key, offset)
    offsets.cover(end_offset)
    return offsets


def filtered(data: bytes, offsets: OffsetMap, **options: Any) -> list[Filtered]:
    options = {"now_ms": 1000, "delete_retention_ms": 500, "upgrades": False, **options}
    cleaner = BatchFilter(offsets, Transactions(), **options)
    return [finish(cleaner.filter(batch)) for batch in batches(data, strict=True)]


def joined(found: list[Filtered]) -> bytes:
    return b"".join(bytes(each.data) for each in found if each.data is not None)


# Kafka's own results


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_what_kafka_keeps_is_kept(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["input"])
    gone = {b"a", b"b", b"c"} - {key.encode() for key in case["keep"].split(",") if key}
    found = filtered(
        data,
        mapped((key, FAR - 1) for key in gone),
        now_ms=case["now"],
        delete_retention_ms=case["deleteRetentionMs"],
        uncleanable_offset=103 if case["emptyBatch"] == "RETAIN_EMPTY" else -1,
    )
    made = joined(found)
    if "-none-" in case["id"]:
        assert made.hex() == case["hex"]
    assert sum(each.records_read for each in found) == 3
    assert sum(each.records_kept for each in found) == len(case["keep"].split(",")) - (not case["keep"])
    built = list(batches(made, strict=True))
    assert len(built) == len(case["batches"])
    for batch, shown in zip(built, case["batches"], strict=True):
        said = header_of(shown)
        if batch.codec:  # the same records are other bytes, ours and Java's
            del said["size_bytes"], said["crc"]
        assert header_in(batch, said) == said
        assert list(batch.records(check_crc=True)) == records_of(shown)


# Record by record


def kept(data: bytes, latest: Iterable[tuple[bytes, int]] = ((b"a", 11),), end_offset: int = 30) -> list[Record]:
    """Return what is left if these keys come again."""
    found = joined(filtered(data, mapped(latest, end_offset)))
    return [record for batch in batches(found) for record in batch.records(check_crc=True)]


def test_superseded_records_and_those_without_key_go() -> None:
    assert kept(build_batch(2, ROWS)) == ROWS[1:3]


def test_records_behind_the_map_stay_even_without_key() -> None:
    assert kept(build_batch(2, ROWS), end_offset=13) == ROWS[1:]
    assert kept(build_batch(2, ROWS[:1] + ROWS[3:]), end_offset=13) == ROWS[3:]


@pytest.mark.parametrize(("horizon", "stays"), [(None, True), (999, False), (1000, False), (1001, True)])
def test_a_tombstone_goes_when_its_horizon_has_come(horizon: int | None, stays: bool) -> None:
    data = build_batch(2, ROWS, delete_horizon=horizon)
    assert (ROWS[2] in kept(data)) == stays
    assert ROWS[2] in kept(data, end_offset=12)  # behind the map it stays in any case


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_the_horizon_is_set_once_and_timestamps_stay(codec: int) -> None:
    data = build_batch(2, ROWS[1:3], codec=codec)
    once = filtered(data, mapped([]))
    first = next(batches(joined(once)))
    assert first.delete_horizon == HORIZON_MS
    assert (first.max_timestamp, first.count) == (300, 2)
    assert list(first.records(check_crc=True)) == ROWS[1:3]
    (again,) = filtered(joined(once), mapped([]), now_ms=1400)
    assert type(again.data) is memoryview
    (later,) = filtered(joined(once), mapped([]), now_ms=1500)
    assert later.data is not None
    assert [(batch.delete_horizon, list(batch.records())) for batch in batches(later.data)] == [(1500, ROWS[1:2])]


def test_tombstones_of_old_formats_stay_as_long_as_the_caller_says() -> None:
    for magic in (0, 1):
        for codec in (NONE, GZIP):
            cleaner = BatchFilter(mapped([]), Transactions(), now_ms=0, delete_retention_ms=0, upgrades=False)
            data = build_batch(magic, ROWS, codec=codec)
            for stays in (True, False):
                cleaner.keeps_old_tombstones = stays
                found = [finish(cleaner.filter(batch)) for batch in batches(data)]
                left = [record.offset for batch in batches(joined(found)) for record in batch.records()]
                assert left == ([10, 11, 12] if stays else [10, 11])


@pytest.mark.parametrize("timestamp_type", [CREATE_TIME, APPEND_TIME])
def test_old_records_keep_the_kind_of_their_time(timestamp_type: int) -> None:
    data = build_batch(1, ROWS[:2], codec=GZIP, timestamp_type=timestamp_type, max_timestamp=700)
    for upgrades in (False, True):
        (found,) = filtered(data, mapped([(b"a", 20)]), upgrades=upgrades)
        (batch,) = batches(joined([found]))
        assert batch.magic == 1 + upgrades
        assert batch.timestamp_type == timestamp_type
        assert batch.max_timestamp == (700 if timestamp_type == APPEND_TIME else 300)


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_become_v2_unless_told_otherwise(magic: int, codec: int) -> None:
    data = build_batch(magic, ROWS[:2], codec=codec)
    upgraded = list(batches(joined(filtered(data, mapped([]), upgrades=True))))
    assert {batch.magic for batch in upgraded} == {2}
    assert {batch.codec for batch in upgraded} == {codec}
    assert [record.offset for batch in upgraded for record in batch.records(check_crc=True)] == [10, 11]
    assert all(type(each.data) is memoryview for each in filtered(data, mapped([]), upgrades=False))
    by_default = BatchFilter(mapped([]), Transactions(), now_ms=0, delete_retention_ms=0)
    found = [finish(by_default.filter(batch)) for batch in batches(data)]
    assert {batch.magic for batch in batches(joined(found))} == {2}


@pytest.mark.parametrize("times", [(0, 0, 0), (5, 5, 5), (5, 70, 9000), (9000, 5, 20), (-1, 400, -1), (1 << 40, 0, 3)])
@pytest.mark.parametrize("timestamp_type", [CREATE_TIME, APPEND_TIME])
def test_times_are_right_whichever_record_goes(times: tuple[int, ...], timestamp_type: int) -> None:
    records = [Record(b"%d" % number, b"v" * 100, (), time, number) for number, time in enumerate(times)]
    stamp = 777 if timestamp_type == APPEND_TIME else None
    data = build_batch(2, records, timestamp_type=timestamp_type, max_timestamp=stamp)
    for gone in (0, 1, 2):
        batch = next(batches(joined(filtered(data, mapped([(b"%d" % gone, 5)])))))
        left = [record for record in records if record.offset != gone]
        if stamp is not None:
            left = [record._replace(timestamp=stamp) for record in left]
        assert list(batch.records(check_crc=True)) == left
        assert batch.max_timestamp == max(record.timestamp for record in left)
        assert batch.base_timestamp == left[0].timestamp


@pytest.mark.parametrize("number", TURNS)
def test_numbers_get_longer_and_shorter_where_times_move(number: int) -> None:
    for size in (0, 50, 110, 8177):
        for times in ((0, number, 2 * number), (number, 0, number), (-1, number, 0)):
            records = [Record(b"%d" % place, b"v" * size, (), time, place) for place, time in enumerate(times)]
            (left,) = batches(joined(filtered(build_batch(2, records), mapped([(b"0", 5)]))), strict=True)
            assert list(left.records(check_crc=True)) == records[1:]
            # Every number is written as short as can be: the builder writes the same.
            assert left.view == build_batch(2, records[1:], base_offset=0)


# Batches as a whole


def test_a_batch_of_which_all_stays_is_handed_on_without_a_copy() -> None:
    data = b"".join(build_batch(2, ROWS[:2], codec=codec) for codec in (NONE, GZIP))
    found = filtered(data, mapped([]))
    assert joined(found) == data
    assert all(type(each.data) is memoryview and each.data.obj is data for each in found)


def test_what_is_left_keeps_its_place_and_its_numbers() -> None:
    data = build_batch(
        2,
        ROWS,
        base_offset=5,
        last_offset=20,
        partition_leader_epoch=3,
        producer_id=9,
        producer_epoch=1,
        base_sequence=40,
        transactional=True,
    )
    (found,) = filtered(data, mapped([(b"a", 50), (b"c", 50)]))
    assert (found.records_read, found.records_kept) == (4, 1)
    assert found.data is not None
    batch = next(batches(found.data))
    assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch, batch.count) == (5, 20, 3, 1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (9, 1, 40, 55)
    assert batch.is_transactional
    assert not batch.is_control


def test_a_batch_of_which_nothing_is_left_goes_unless_it_is_needed() -> None:
    gone = mapped([(b"a", 20)])
    data = build_batch(2, ROWS[:1], codec=GZIP, producer_id=9, producer_epoch=1, base_sequence=40, delete_horizon=2000)
    assert joined(filtered(data, gone)) == b""
    assert joined(filtered(data, gone, producers={9: (11, 1), 8: (10, 1)}, uncleanable_offset=10)) == b""
    for options in ({"producers": {9: (10, 0)}}, {"uncleanable_offset": 11}):
        (found,) = filtered(data, gone, **options)
        assert (found.records_read, found.records_kept) == (1, 0)
        assert found.data is not None
        (batch,) = batches(found.data, strict=True)
        assert (batch.size_bytes, batch.count, batch.codec, batch.delete_horizon) == (61, 0, NONE, None)
        assert (batch.base_offset, batch.last_offset, batch.base_sequence, batch.max_timestamp) == (10, 10, 40, 100)
        assert (batch.producer_id, batch.producer_epoch, batch.base_timestamp) == (9, 1, -1)
        assert batch.crc_is_valid()
        # The next pass: as long as it is needed it stays.
        assert joined(filtered(joined([found]), gone, **options)) == joined([found])
        assert joined(filtered(joined([found]), gone)) == b""


def test_aborted_data_goes_at_once() -> None:
    data = build_batch(2, ROWS, producer_id=9, producer_epoch=1, base_sequence=40, transactional=True)
    transactions = Transactions()
    transactions.add_aborted([AbortedTxn(producer_id=9, first_offset=10, last_offset=14, last_stable_offset=15)])
    for producers, size_bytes in (({}, 0), ({9: (13, 1)}, 61)):
        cleaner = BatchFilter(mapped([]), transactions, now_ms=0, delete_retention_ms=0, producers=producers)
        found = [finish(cleaner.filter(batch)) for batch in batches(data)]
        assert len(joined(found)) == size_bytes
        assert (found[0].records_read, found[0].records_kept) == (4, 0)


def marker(offset: int) -> bytes:
    return build_transaction_marker(
        commit=True, offset=offset, timestamp=100, producer_id=9, producer_epoch=1, coordinator_epoch=0
    )


def test_a_marker_gets_a_horizon_when_its_data_is_gone_and_goes_when_that_has_come() -> None:
    data = build_batch(2, ROWS[:1], producer_id=9, producer_epoch=1, base_sequence=0, transactional=True) + marker(11)
    gone = mapped([(b"a", 20)])
    assert joined(filtered(data, mapped([]))) == data
    # Its data goes in this pass: nothing is known of it in the next one.
    first = joined(filtered(data, gone))
    assert first == marker(11)
    second = joined(filtered(first, gone))
    batch = next(batches(second))
    assert batch.delete_horizon == HORIZON_MS
    assert [record.timestamp for record in batch.records(check_crc=True)] == [100]
    assert joined(filtered(second, gone, now_ms=1499)) == second
    assert joined(filtered(second, gone, now_ms=1500)) == b""
    # As long as the producer is known only by this marker, its epoch stays.
    emptied = joined(filtered(second, gone, now_ms=1500, producers={9: (-1, 1)}))
    assert len(emptied) == 61
    assert joined(filtered(emptied, gone, producers={9: (-1, 1)})) == emptied
    assert joined(filtered(emptied, gone, producers={9: (-1, 2)})) == b""


def test_control_records_of_leaders_stay() -> None:
    data = build_batch(2, [Record(bytes((0, 0, 0, LEADER_CHANGE)), b"", (), 0, 3)], control=True)
    for upgrades in (False, True):
        (found,) = filtered(data, mapped([(b"\0\0\0\2", 10)]), upgrades=upgrades)
        assert found.data == data
        assert type(found.data) is memoryview
        assert found.data.obj is data, "handed on without a copy"


def test_producers_are_known_by_their_last_batch_or_their_epoch() -> None:
    states = ProducerStates()
    numbered = build_batch(2, ROWS, producer_id=9, producer_epoch=1, base_sequence=0)
    states.apply(next(batches(numbered)))
    states.apply(next(batches(marker(20).replace((9).to_bytes(8, "big"), (8).to_bytes(8, "big")))))
    assert last_batches(states) == {9: (13, 1), 8: (-1, 1)}


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_large_batches_are_filtered_in_pieces(codec: int) -> None:
    records = [Record(b"%d" % (index % 500), b"v", (), index, index) for index in range(1000)]
    cleaner = BatchFilter(
        mapped([(b"%d" % key, 500 + key) for key in range(500)]), Transactions(), now_ms=0, delete_retention_ms=0
    )
    batch = next(batches(build_batch(2, records, codec=codec)))
    assert sum(1 for _ in cleaner.filter(batch)) >= 1000 // 128 + 500 // 128
    old = next(batches(build_batch(1, records, codec=GZIP)))
    assert sum(1 for _ in cleaner.filter(old)) == 1000 // 128


# Records as nobody writes them

USUAL = "10 00 00 00 02 61 02 31 00"  # size, attributes, time, offset, key, value, headers
LONGER = {
    "size": "90 00 00 00 00 02 61 02 31 00",
    "time": "12 00 80 00 00 02 61 02 31 00",
    "offset": "12 00 00 80 00 02 61 02 31 00",
    "key": "12 00 00 00 82 00 61 02 31 00",
    "value": "12 00 00 00 02 61 82 00 31 00",
    "no key": "10 00 00 00 81 00 02 31 00",
    "no value": "10 00 00 00 02 61 81 00 00",
}
BROKEN = {
    "size goes on": "90 80 80 80 80 00 00 00 00 02 61 02 31 00",
    "size below zero": "0f 00 00 00 02 61 02 31 00",
    "size too small": "0e 00 00 00 02 61 02 31 00",
    "size too large": "12 00 00 00 02 61 02 31 00",
    "time without end": "10 00 ff ff ff ff ff ff ff",
    "offset below zero": "10 00 00 80 80 80 80 80 80",
    "key below zero": "10 00 00 00 03 61 02 31 00",
    "key beyond the end": "10 00 00 00 7e 61 02 31 00",
    "value below zero": "10 00 00 00 02 61 03 31 00",
    "cut short": "10 00 00 00 02 61",
    "more than one": f"{USUAL} {USUAL}",
    "nothing": "",
}


def odd_batch(body: str, count: int = 1) -> bytes:
    """Return a batch at offset 7 with these bytes for its records."""
    made = bytearray(build_batch(2, ROWS[:1], base_offset=7)[:61] + bytes.fromhex(body))
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    made[57:61] = count.to_bytes(4, "big")
    seal(made)
    return bytes(made)


@pytest.mark.parametrize("body", LONGER.values(), ids=LONGER)
def test_numbers_that_are_longer_than_need_be_are_read_all_the_same(body: str) -> None:
    both = odd_batch(f"{body} 10 00 00 02 02 62 02 31 00", 2)
    first, second = next(batches(both)).records()
    # Only the first, only the second, and both stay.
    assert kept(both, latest=[(b"b", 9)]) == [first] * (first.key is not None)
    assert kept(both, latest=[(b"a", 9)]) == [second]
    assert kept(both, latest=[(b"a", 5)]) == [first, second][first.key is None :]
    offsets = OffsetMap(MAP_BYTES)
    finish(offsets.take(next(batches(both))))
    assert [offsets.latest(key) for key in (b"a", b"b")] == [7 if first.key else -1, 8]


@pytest.mark.parametrize(("horizon_ms", "stays"), [(1000, False), (1001, True)])
def test_a_tombstone_with_longer_numbers_goes_when_its_horizon_has_come(horizon_ms: int, stays: bool) -> None:
    made = bytearray(odd_batch(LONGER["no value"]))
    made[22] |= 1 << 6
    made[27:35] = horizon_ms.to_bytes(8, "big")
    seal(made)
    assert joined(filtered(bytes(made), mapped([]))) == (bytes(made) if stays else b"")


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_read_is_an_error(body: str) -> None:
    batch = next(batches(odd_batch(body)))
    with pytest.raises(ProtocolError):
        finish(OffsetMap(MAP_BYTES).take(batch))
    with pytest.raises(ProtocolError):
        filtered(odd_batch(body), mapped([]))


@pytest.mark.parametrize(
    ("base", "time"),
    [
        (0, "80 80 80 80 80 80 80 80 80 80 01"),  # longer than any number
        (0, "fe ff ff ff ff ff ff ff ff 03"),  # more than 64 bits
        ((1 << 63) - 1, "06"),  # a time of more than 64 bits
        (-(1 << 63), "01"),
    ],
)
def test_times_that_cannot_be_written_are_an_error(base: int, time: str) -> None:
    size = (7 + len(bytes.fromhex(time))) * 2
    made = bytearray(odd_batch(f"{USUAL} {size:02x} 00 {time} 02 02 62 02 31 00", 2))
    made[27:35] = base.to_bytes(8, "big", signed=True)
    with pytest.raises(ProtocolError):
        filtered(bytes(made), mapped([(b"a", 9)]))


# Any batch


def model(case: Case, batch: Batch, may_go: bool, *, upgrades: bool) -> tuple[list[Record], dict[str, Any]] | None:
    """Return what must be left, records and header, by the rules alone; None is nothing."""
    horizon = batch.delete_horizon
    is_over = horizon is not None and horizon <= NOW_MS
    records = list(batch.records())
    if may_go and (is_over or not batch.is_control):
        left = []
    elif batch.is_control:
        left = records
    else:
        keeps_tombstones = not is_over if batch.magic == 2 else case.keeps_old_tombstones
        left = [
            record
            for record in records
            if record.offset >= case.end_offset
            or (
                record.key is not None
                and record.offset >= case.latest.get(record.key, -1)
                and (record.value is not None or keeps_tombstones)
            )
        ]
    magic = 2 if upgrades else batch.magic
    header = {name: getattr(batch, name) for name in KEPT_FIELDS}
    header |= {"magic": magic, "delete_horizon": horizon, "max_timestamp": batch.max_timestamp}
    if not left:
        last = case.producers.get(batch.producer_id) if batch.producer_id >= 0 else None
        is_last = last is not None and (
            batch.last_offset == last[0] if last[0] >= 0 else batch.is_control and batch.producer_epoch == last[1]
        )
        if magic < 2 or not (is_last or batch.next_offset == case.uncleanable_offset):
            return None
        return [], header | {"codec": NONE, "delete_horizon": None, "base_offset": batch.base_offset}
    if magic == 2 and horizon is None and (may_go or any(record.value is None for record in left)):
        header["delete_horizon"] = NOW_MS + RETENTION_MS
    if len(left) < len(records) or header["delete_horizon"] != horizon or magic != batch.magic:
        header["max_timestamp"] = max(-1, *(record.timestamp for record in left))
    header["base_offset"] = batch.base_offset if batch.magic == 2 else left[0].offset
    header["last_offset"] = batch.last_offset if batch.magic == 2 else left[-1].offset
    return left, header


KEPT_FIELDS = (
    *("last_offset", "codec", "partition_leader_epoch", "producer_id", "producer_epoch", "base_sequence"),
    *("is_transactional", "is_control"),
)


@pytest.mark.slow
@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False), st.booleans())
def test_any_batch_is_filtered_by_the_rules_alone(random: Random, upgrades: bool) -> None:
    case = Case(random)
    found, verdicts = case.filtered(upgrades=upgrades)
    for batch, each, may_go in zip(case.batches, found, verdicts, strict=True):
        expected = model(case, batch, may_go, upgrades=upgrades)
        if expected is None:
            assert each.data is None
            continue
        assert each.data is not None
        (left,) = batches(each.data, strict=True)
        records, header = expected
        assert list(left.records(check_crc=True)) == records
        assert header_in(left, header) == header
        assert left.timestamp_type in (batch.timestamp_type, CREATE_TIME if batch.magic == 0 else None)
        assert (each.records_read, each.records_kept) == (batch.count, len(records))


@pytest.mark.slow
@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False), st.booleans())
def test_any_bytes_are_filtered_or_refused(random: Random, upgrades: bool) -> None:
    case = Case(random)
    broken = bytearray(case.data)
    for _ in range(random.randint(1, 3)):
        broken[random.randrange(len(broken))] = random.randrange(256)
    try:
        case.batches = list(batches(broken))
        case.filtered(upgrades=upgrades)
    except ProtocolError:
        pass

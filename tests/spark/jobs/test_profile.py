"""profile: every figure is that of an independent count, wherever partitions and tasks are cut."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import xml.etree.ElementTree as Tree
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from minibroker import Broker
from minibroker.log.build import build_batch
from minibroker.log.compression import GZIP, LZ4, SNAPPY, ZSTD, compress
from minibroker.log.records import Record
from minibroker.spark.jobs import profile_counting
from minibroker.spark.jobs.codecs_measuring import pieces_of
from minibroker.spark.jobs.profile import _for_tasks, _ranges, _works, try_codecs
from minibroker.spark.jobs.profile_counting import Stretch, count_works
from minibroker.spark.jobs.profile_report import _over_time
from minibroker.spark.jobs.profile_sql import ROWS_MAX
from minibroker.spark.jobs.profile_tables import Counted, key_text, made, problems_of, size_row
from minibroker.spark.options import Options, parse, pinned
from minibroker.spark.reading import plan, reader_of
from tests.goldens import log_meaning
from tests.interop.random_logs import RandomLog
from tests.spark.jobs.counting import Tables, Truth, expected
from tests.spark.logs import START_MS, asked, golden_directory, open_at, read, written
from tests.spark.session import Session

NOW_MS = START_MS + 20_000
TASKS_MAX = 700  # logs have a gap of 2 ** 30 offsets, for which no task is started


def profiled(
    spark: Session,
    root: Path,
    *,
    task_bytes: int = 3000,
    servers: str = "",
    isolation: str = "read_uncommitted",
    mode: str = "fail",
    limits: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return the summary as scripts get it."""
    source = (
        {"kafka.bootstrap.servers": servers}
        if servers
        else {"path": str(root), "maxBytesPerPartition": str(task_bytes)}
    )
    source |= {"subscribePattern": ".*", "kafka.isolation.level": isolation, "mode": mode, **(limits or {})}
    found = spark.call("tests.spark.jobs.running:profile", source=source, now_ms=NOW_MS)
    summary: dict[str, Any] = json.loads(found["json"])
    assert found["tasks"] < TASKS_MAX
    return summary


def check(found: dict[str, Any], wanted: Tables, topic: str) -> None:
    for name, rows in wanted.items():
        assert [row for row in found[name] if row["topic"] == topic] == rows, name


def check_sizes(found: dict[str, Any], truth: Truth, topic: str) -> None:
    rows = {row["what"]: row for row in found["sizes"] if row["topic"] == topic}
    assert rows.keys() == truth.sizes.keys()
    for what, numbers in truth.sizes.items():
        row, numbers = rows[what], sorted(numbers)
        ends = row["count"], row["smallest"], row["largest"], row["mean"]
        assert ends == (len(numbers), numbers[0], numbers[-1], round(sum(numbers) / len(numbers), 3)), what
        median = numbers[-(-len(numbers) // 2) - 1]
        assert median <= row["median"] <= median * 9 / 8 + 1, what


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task_bytes"), [("kraft39-2-after-clean", 1000), ("kraft44-1", 1 << 20), ("zk28-2-after-clean", 300)]
)
def test_what_kafka_wrote_is_counted(name: str, task_bytes: int, spark: Session, tmp_path: Path) -> None:
    root = golden_directory(tmp_path, name)
    found = profiled(spark, root, task_bytes=task_bytes)
    words = [line.split() for line in (root / "log-start-offset-checkpoint").read_text().splitlines()]
    begins = {(line[0], int(line[1])): int(line[2]) for line in words if len(line) == 3}
    topics: dict[str, list[int]] = {}
    for partition in log_meaning(name)["partitions"]:
        topic, _, number = partition.rpartition("-")
        if not topic.startswith("__"):
            topics.setdefault(topic, []).append(int(number))
    checked = 0
    for topic, numbers in topics.items():
        starts = {each: begins.get((topic, each), 0) for each in numbers}
        truths = {each: Truth(root / f"{topic}-{each}", NOW_MS, starts[each]) for each in sorted(numbers)}
        truths = {each: truth for each, truth in truths.items() if truth.end_offset > starts[each]}
        if truths:
            check(found, expected(topic, truths, starts), topic)
            checked += 1
    assert checked > 5


@pytest.mark.interop
@pytest.mark.slow
def test_random_logs_are_counted_in_many_tasks(spark: Session, tmp_path: Path) -> None:
    truths: dict[str, Truth] = {}
    for seed in range(12):
        log, chance = RandomLog(tmp_path / str(seed), seed), Random(seed)
        for _ in range(chance.randint(1, 4)):
            log.grow()
            log.open()
        log.log.close()
        path = Path(shutil.move(log.path, tmp_path / "data" / f"random{seed}-0"))
        truths[f"random{seed}"] = Truth(path, NOW_MS)
    found = profiled(spark, tmp_path / "data", task_bytes=200)
    for topic, truth in truths.items():
        check(found, expected(topic, {0: truth}, {}), topic)
        check_sizes(found, truth, topic)
    assert found["records"] == sum(len(truth.offsets) for truth in truths.values())
    assert found["oldest"] == min(row["oldest"] for row in found["timestamps"] if row["oldest"])


@pytest.mark.interop
@pytest.mark.slow
def test_what_isolation_hides_is_counted_as_hidden(spark: Session, tmp_path: Path) -> None:
    for seed in range(6):
        log = RandomLog(tmp_path / str(seed), seed)
        log.magic = 2
        log.grow()
        log.grow()
        log.log.close()
        shutil.move(log.path, tmp_path / "data" / f"random{seed}-0")
    found = profiled(spark, tmp_path / "data", isolation="read_committed")
    hidden = 0
    for row in found["gaps"]:
        rows = read(tmp_path / "data", row["topic"], kafka_isolation_level="read_committed")
        everything = read(tmp_path / "data", row["topic"], endingOffsets=row["offsets"])
        assert row["offsets"] - row["without_record"] == len(rows)
        assert row["removed"] == row["without_record"] - row["control_records"] - row["hidden"]
        assert row["hidden"] == len(everything) - len(rows)
        hidden += row["hidden"]
    assert hidden


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:minibroker.Broker")
def test_brokers_give_the_figures_of_their_directories(spark: Session, tmp_path: Path) -> None:
    root = golden_directory(tmp_path / "files", "kraft39-2-after-clean")
    served = Path(shutil.copytree(root, tmp_path / "served"))
    wanted = profiled(spark, root)
    with Broker(data_dir=served, log_retention_ms=-1) as broker:
        found = profiled(spark, root, servers=broker.bootstrap_servers)
    assert found["records"] > 100
    del found["compressibility"], wanted["compressibility"]  # samples follow tasks, which are cut in other places
    assert found == wanted


@pytest.mark.interop
@pytest.mark.slow
def test_partitions_are_one_topic_and_a_range_counts_batches_where_they_end(spark: Session, tmp_path: Path) -> None:
    written(tmp_path, 300, "orders-0", per_batch=10, codec=4)
    written(tmp_path, 100, "orders-1", per_batch=4)
    truths = {number: Truth(tmp_path / f"orders-{number}", NOW_MS) for number in (0, 1)}
    found = profiled(spark, tmp_path, task_bytes=500)
    check(found, expected("orders", truths, {}), "orders")
    assert found["keys"][0]["partition_skew"] == 1.5
    assert found["keys"][0]["keys_in_several_partitions"] == 7
    limits = {"startingOffsets": '{"orders":{"0":5,"1":0}}', "endingOffsets": '{"orders":{"0":33,"1":0}}'}
    found = profiled(spark, tmp_path, limits=limits)
    (row,) = found["partitions"]
    assert (row["first_offset"], row["end_offset"], row["records"], row["batches"]) == (5, 33, 28, 3)


@pytest.mark.interop
@pytest.mark.slow
def test_a_broken_batch_is_a_problem_and_the_rest_is_counted(spark: Session, tmp_path: Path) -> None:
    written(tmp_path, 100, per_batch=10, segment_bytes=1 << 20)
    path = next((tmp_path / "orders-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2 + 70] ^= 1  # in the records of the sixth of ten batches of one size
    path.write_bytes(data)
    found = profiled(spark, tmp_path, mode="skip")
    (problem,) = found["problems"]
    assert re.match(rf"orders-0, offsets 50 to 59, byte \d+ of {path}: .* is not the checksum", problem), problem
    assert (found["records"], found["batches"]) == (90, 9)


@pytest.mark.interop
@pytest.mark.slow
def test_what_stands_out_is_said_and_drawn(spark: Session, tmp_path: Path) -> None:
    log = open_at(tmp_path / "data", segment_bytes=1 << 20)
    chance = Random(3)
    for start in range(0, 3000, 20):
        records = [
            Record(
                b"hot" if chance.random() < 0.4 else b"k%d" % chance.randrange(100),
                None if chance.random() < 0.1 else b'{"state": "<paid>", "amount": %d}' % chance.randrange(100),
                (("trace", b"1"),),
                START_MS + 1000 * offset - chance.randrange(5000) if offset else 0,
                offset,
            )
            for offset in range(start, start + 20)
        ]
        batch = build_batch(2, records, base_offset=start, producer_id=7, producer_epoch=0, transactional=start > 2900)
        log.append_as_follower(batch, now_ms=START_MS)
    log.close()
    written(tmp_path / "data", 3000, "quiet-0", per_batch=1000, codec=4, segment_bytes=1 << 20)
    place = tmp_path / "made" / "report.html"
    source = {"path": str(tmp_path / "data"), "subscribe": "orders"}
    found = spark.call("tests.spark.jobs.running:profile", source=source, html=str(place), now_ms=START_MS)
    *said, where = json.loads(found["json"])["notes"]
    assert where == f"the report is {place}"
    for words in (
        "The key hot has 39.8 %",
        "Batches are small",
        "stored without compression",
        "in the future",
        "1970-01-01",
        "older than the one before",
        "transactions without an end",
    ):
        assert words in "\n".join(said), said
    assert found["status"] == 0
    html = place.read_text()
    page = Tree.fromstring(html.removeprefix("<!DOCTYPE html>\n"))
    assert not re.search(r"https?:|<script|<link|@import|url\(|src=", html)
    charts = [each for each in page.iter() if each.attrib.get("role") == "img"]
    assert len(charts) >= 7
    assert all(each.attrib["aria-label"] for each in charts)
    captions = ["".join(each.itertext()) for each in page.iter("figcaption")]
    for start in ("Records per", "Most frequent keys", "Sizes of values", "Sizes of batches", "Stored bytes by codec"):
        assert any(caption.startswith(start) for caption in captions), start
    assert all(each.find("details") is not None for each in page.iter("figure"))
    words = "".join(page.itertext())
    assert all(each in words for each in ("3,000", "What stands out", "hot", "1970-01-01"))
    future = START_MS * 2
    quiet = {**source, "subscribe": "quiet"}
    assert (
        json.loads(spark.call("tests.spark.jobs.running:profile", source=quiet, now_ms=future)["json"])["notes"] == []
    )


@pytest.mark.interop
@pytest.mark.slow
def test_a_page_of_nothing_can_be_made(spark: Session, tmp_path: Path) -> None:
    open_at(tmp_path).close()
    place = tmp_path / "report.html"
    source = {"path": str(tmp_path), "subscribe": "orders"}
    found = spark.call("tests.spark.jobs.running:profile", source=source, html=str(place), now_ms=NOW_MS)
    assert json.loads(found["json"])["records"] == 0
    Tree.fromstring(place.read_text().removeprefix("<!DOCTYPE html>\n"))


# Without Spark


@pytest.mark.parametrize(
    "hour", [253_402_300_800, 2**62 // 1000 // 3600 * 3600, -3600], ids=["10000", "2 ** 62", "1969"]
)
def test_a_time_that_no_calendar_has_is_no_reason_to_draw_nothing(hour: int) -> None:
    hours = [{"hour": START_MS, "records": 5}, {"hour": hour * 1000, "records": 1}]
    drawn = _over_time(hours)
    assert "Records per" in drawn
    assert len(drawn) < 100_000  # one broken time makes no millions of columns


def test_all_queries_read_the_offsets_that_were_found_first() -> None:
    given = {
        "path": "data",
        "subscribePattern": "x",
        "STARTINGTIMESTAMP": "5",
        "kafka.isolation.level": "read_committed",
    }
    told = pinned(given, [("orders", 0, 3, 9), ("orders", 2, 0, 4), ("other", 0, 1, 2)])
    assert told == {
        "path": "data",
        "kafka.isolation.level": "read_committed",
        "assign": '{"orders": [0, 2], "other": [0]}',
        "startingOffsets": '{"orders": {"0": 3, "2": 0}, "other": {"0": 1}}',
        "endingOffsets": '{"orders": {"0": 9, "2": 4}, "other": {"0": 2}}',
    }
    parse(told)


def ends_of_transactions(root: Path) -> dict[tuple[str, int], list[int]]:
    """Return records committed, aborted and open of each producer, put together as SQL does."""
    options = asked(root)
    works = _works({"path": str(root), "subscribe": "orders"}, _ranges(options, pytest.fail), NOW_MS)
    numbers = pa.RecordBatch.from_pydict({"id": range(len(works))})
    rows = [row for facts in count_works(works)(iter([numbers])) for row in facts.to_pylist()]
    found: dict[tuple[str, int], list[int]] = {}
    later: dict[int, int] = {}  # the first marker of a producer behind what is looked at
    about_producers = sorted((row for row in rows if row["producer"] is not None), key=lambda row: -row["chunk"])
    for _, group in groupby(about_producers, key=lambda row: row["chunk"]):
        chunk = list(group)
        for row in chunk:
            sums = found.setdefault((row["topic"], row["producer"]), [0, 0, 0])
            ends = [row["committed"], row["aborted"], 0]
            ends[{1: 0, 2: 1}.get(later.get(row["producer"], 0), 2)] += row["open"]
            sums[:] = [before + more for before, more in zip(sums, ends, strict=True)]
        later |= {row["producer"]: row["marker"] for row in chunk if row["marker"]}
    return found


def test_what_is_lost_before_it_is_read_is_told(tmp_path: Path) -> None:
    written(tmp_path, 30, per_batch=10)
    told: list[str] = []
    options = parse({"path": str(tmp_path), "subscribe": "orders", "endingOffsets": '{"orders":{"0":40}}'}
                    | {"failOnDataLoss": "false"})  # fmt: skip
    assert [each[2:] for each in _ranges(options, told.append)] == [(0, 30)]
    assert told == ["data loss, endingOffsets: orders-0 ends at 30, there is nothing up to 40"]


def test_a_task_is_not_told_of_all_partitions() -> None:
    ranges = [(f"t{number}", partition, 5, 9) for number in range(1000) for partition in range(3)]
    options = parse(pinned({"path": "data", "subscribePattern": "t.*"}, ranges))
    assert len(pickle.dumps(options)) > 40_000
    assert len(pickle.dumps(_for_tasks(options))) < 2000


class ReaderOfFew:
    """A reader that hands out two rows at a time."""

    def __init__(self, task: Any, options: Options):
        self._reader = reader_of(task, options)

    def batches(self) -> Iterator[pa.RecordBatch]:
        for rows in self._reader.batches():
            for begin in range(0, len(rows), 2):
                yield rows.slice(begin, 2)


@pytest.mark.parametrize("seed", range(8))
def test_batches_are_counted_a_share_at_a_time(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RandomLog(tmp_path / "made", seed)
    log.magic = 2
    for _ in range(3):
        log.grow()
    log.log.close()
    shutil.move(log.path, tmp_path / "data" / "orders-0")
    wanted = ends_of_transactions(tmp_path / "data")
    assert any(sum(ends) for ends in wanted.values())
    monkeypatch.setattr(profile_counting, "HEADERS_AT_ONCE", 1)
    monkeypatch.setattr(profile_counting, "reader_of", ReaderOfFew)
    assert ends_of_transactions(tmp_path / "data") == wanted


def test_a_sample_is_packed_by_every_codec(tmp_path: Path) -> None:
    written(tmp_path, 300, per_batch=10)
    options = asked(tmp_path)
    options.columns = ["key", "value"]
    values = b"".join(b"%d" % number for number in range(300))
    wanted = {codec: len(compress(codec, values)) for codec in (GZIP, SNAPPY, LZ4, ZSTD)}
    assert try_codecs(pieces_of(plan(options), options, 1 << 20)) == (len(values), wanted)
    _, found = try_codecs(pieces_of(plan(options), options, 100))
    assert 0 < found[ZSTD] < wanted[ZSTD]


def test_what_is_above_a_limit_is_told() -> None:
    counted = Counted([("t", 0, 0, 9)], NOW_MS)
    counted.join([])
    row = {"topic": "t", "partition": 0, "records": 1, "bytes": 1}
    counted.hours = [{**row, "hour": 3_600_000 * n} for n in range(ROWS_MAX + 1, 0, -1)]
    _, tables, notes = made(counted, is_committed=False)
    (hours,) = (table.rows for table in tables if table.name == "hours")
    assert (len(hours), hours[0][2]) == (ROWS_MAX, "1970-01-01T02:00:00.000Z"), "the oldest is left out"
    assert notes == ["the table hours has 100,000 rows, the newest; there are more"]


def joined(*stretches: tuple[str, Stretch]) -> Counted:
    counted = Counted([(topic, 0, 0, 1000) for topic, _ in stretches], NOW_MS)
    counted.join({"topic": name, "partition": 0, "chunk": 0, "stretch": pickle.dumps(each)} for name, each in stretches)
    return counted


def test_records_that_nobody_has_read_and_broken_batches_are_problems() -> None:
    counts = [("a", 10, 0, 10), ("b", 0, 1, 5), ("c", 1_000, 0, 999)]
    stretches = [
        (name, Stretch(Counter(promised=all_, vague=vague, records=read_))) for name, all_, vague, read_ in counts
    ]
    told = "c-0: batches hold 1,000 records, and 999 were read"
    assert problems_of(joined(*stretches), is_committed=False) == [told]
    assert problems_of(joined(*stretches), is_committed=True) == []
    found = problems_of(joined(("a", Stretch(broken=[f"{n:3}" for n in range(201)]))), is_committed=False)
    assert (found[199:], len(found)) == (["199", "there are more than 200 broken batches"], 201)


def test_percentiles_are_those_of_bins() -> None:
    found = size_row([(3, 50), (127, 49), (1023, 1)], smallest=3, largest=1000, total=0)
    assert (found["median"], found["p99"], found["count"]) == (3, 127, 100)
    found = size_row([(3, 49), (1023, 51)], smallest=3, largest=1000, total=0)
    assert (found["median"], found["p99"]) == (1000, 1000)


@pytest.mark.parametrize(
    ("key", "text"), [(b"user-1", "user-1"), (b"\xff\x00", "0xff00"), ("grün".encode(), "grün"), (b"a\nb", "0x610a62")]
)
def test_keys_are_shown_as_text_if_they_are(key: bytes, text: str) -> None:
    assert key_text(key) == text
    assert len(key_text(key * 100)) <= 60


def test_a_codec_that_kafka_does_not_know_is_a_row_behind_the_others() -> None:
    names = ("unknown 5", "zstd", "none")
    counted = joined(("a", Stretch(Counter({("codec", 2, name, "batches"): 1 for name in names}))))
    assert [row["codec"] for row in counted.codecs()] == ["none", "zstd", "unknown 5"]

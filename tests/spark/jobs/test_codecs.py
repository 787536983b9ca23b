"""codecs: what is measured is right, what is recommended follows from it, and the report can be sent on."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as Tree
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from minibroker.log.build import build_batch
from minibroker.log.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from minibroker.log.formats import HEADER_BYTES
from minibroker.log.records import Record
from minibroker.spark.jobs.codecs import _tables, codecs, settings_of, size_of
from minibroker.spark.jobs.codecs_advice import Load, advise, compare, cost_of, reference_bytes, way_seconds
from minibroker.spark.jobs.codecs_measuring import (
    ROUNDS,
    Measurement,
    Piece,
    Setting,
    Trial,
    Work,
    measure,
    pieces_of,
    read_piece,
    sections_of,
    setting_of,
)
from minibroker.spark.jobs.codecs_report import codecs_report
from minibroker.spark.option_values import OptionError
from minibroker.spark.options import Options, parse
from minibroker.spark.reading import plan
from tests.spark.logs import START_MS, open_at, promise
from tests.spark.session import Session
from tests.spark.test_same_as_spark_kafka import adopt, served

ALL = settings_of("none,gzip,snappy,lz4,zstd")
KIB = 1024


def some_records(number: int, seed: int = 1) -> list[Record]:
    chance = Random(seed)
    states = ["paid", "shipped", "cancelled", "refunded"]
    return [
        Record(
            None if chance.random() < 0.1 else b"customer-%d" % chance.randrange(500),
            None
            if chance.random() < 0.05
            else json.dumps({"order": chance.randrange(10**9), "state": chance.choice(states), "n": offset}).encode(),
            (("trace", b"%d" % offset), ("empty", None)) if chance.random() < 0.2 else (),
            START_MS + 13 * offset,
            offset,
        )
        for offset in range(number)
    ]


def topic_of(root: Path, records: list[Record], name: str = "orders-0") -> Options:
    log = open_at(root, name, segment_bytes=1 << 20)
    for start in range(0, len(records), 50):
        log.append_as_follower(build_batch(2, records[start : start + 50], codec=LZ4), now_ms=START_MS)
    log.close()
    return parse({"path": str(root), "subscribe": name[:-2], "includeHeaders": "true"})


def measured(codec: str, ratio: float, speed: float, size: int = 16 * KIB, spread: float = 0.0) -> Measurement:
    setting = setting_of(codec)
    is_none = setting.codec == NONE
    packed = round(1_000_000 / ratio)
    speeds = (None, None) if is_none else (speed, 4 * speed)
    return Measurement("orders", setting, size, 10, 100, 1_000_000, packed, *speeds, spread)


# Samples


def test_a_sample_is_a_run_of_the_topic(tmp_path: Path) -> None:
    records = some_records(2000)
    options = topic_of(tmp_path, records)
    (piece,) = pieces_of(plan(options), options, 30_000)
    table = pa.Table.from_batches(read_piece(piece)).to_pydict()
    number = len(table["value"])
    assert table["key"] == [each.key for each in records[:number]]
    assert table["value"] == [each.value for each in records[:number]]
    size_bytes = [len(each.key or b"") + len(each.value or b"") for each in records]
    assert sum(size_bytes[: number - 1]) < 30_000 <= sum(size_bytes[:number])


def test_a_topic_smaller_than_the_sample_is_taken_whole(tmp_path: Path) -> None:
    options = topic_of(tmp_path, some_records(70))
    (piece,) = pieces_of(plan(options), options, 1 << 20)
    assert sum(map(len, read_piece(piece))) == 70


def test_runs_come_from_all_over_a_large_topic(tmp_path: Path) -> None:
    options = parse({"path": str(tmp_path), "subscribe": "orders", "maxBytesPerPartition": "10000"})
    topic_of(tmp_path, some_records(3000))
    tasks = plan(options)
    pieces = pieces_of(tasks, options, 40_000)
    assert len(tasks) > 8
    assert [each.task for each in pieces] == [tasks[len(tasks) * n // 4] for n in range(4)]
    assert {each.size_bytes for each in pieces} == {10_000}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:minibroker.Broker")
def test_brokers_give_the_same_sample(tmp_path: Path) -> None:
    options = topic_of(tmp_path / "data", some_records(500))
    wanted = pa.Table.from_batches(read_piece(pieces_of(plan(options), options, 20_000)[0]))
    adopt(tmp_path / "served", {"orders-0": tmp_path / "data" / "orders-0"})
    with served(tmp_path / "served") as broker:
        told = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders", "includeHeaders": "true"}
        over_wire = parse(told)
        found = pa.Table.from_batches(read_piece(Piece(plan(over_wire)[0], over_wire, 20_000)))
    assert len(found) > 100
    assert found.equals(wanted)


# Measuring


def test_sections_are_those_of_batches_built_record_by_record(tmp_path: Path) -> None:
    records = some_records(600)
    options = topic_of(tmp_path, records)
    run = read_piece(pieces_of(plan(options), options, 1 << 20)[0])
    sections, counts = sections_of([run, [], run], 4 * KIB)
    assert sum(counts) == 1200
    assert len(sections) > 20
    half = len(sections) // 2
    assert sections[:half] == sections[half:], "a batch does not go over the end of a run"
    start = 0
    for section, number in zip(sections[:half], counts[:half], strict=True):
        batch = build_batch(2, records[start : start + number])
        assert len(batch) <= 4 * KIB
        assert batch[HEADER_BYTES:] == section
        start += number


def test_ratios_are_those_of_the_codecs(tmp_path: Path) -> None:
    options = topic_of(tmp_path, some_records(600))
    pieces = pieces_of(plan(options), options, 1 << 20)
    found, _ = measure(Work("orders", pieces, 4 * KIB, [*ALL, Setting(ZSTD, 9)], 0.05))
    sections, _ = sections_of([read_piece(pieces[0])], 4 * KIB)
    for each in found:
        codec, level = each.setting
        taken = sections[: each.batches]  # of slow levels there may be fewer
        packed = sum(HEADER_BYTES + len(compress(codec, section, level=level)) for section in taken)
        assert each.packed_bytes == packed
        assert each.raw_bytes == sum(HEADER_BYTES + len(each) for each in taken)
        assert (each.compress_mb_s is None) == (codec == NONE)
        assert codec == NONE or (each.decompress_mb_s or 0) > 0
    assert found[0].ratio == 1.0
    assert all(each.ratio > 1.3 for each in found[1:])


def test_throughput_is_the_median_of_rounds_by_the_given_clock() -> None:
    ticks = count(0, 20)  # every look at the clock is 20 ms after the one before
    trial = Trial(Setting(LZ4), [b"abc" * 1000] * 10, 1e9, lambda: float(next(ticks)))
    trial._times = [1, 2]
    for _ in range(ROUNDS):
        trial.run()
    found = trial.measured(Work("t", [], KIB, [], 1), [1] * 10)
    assert found.compress_mb_s == pytest.approx(30_000 / 1e6 / 0.02)
    assert found.decompress_mb_s == pytest.approx(30_000 / 1e6 / 0.01), "done twice in that time"
    assert (found.spread, found.batches, found.records) == (0.0, 10, 10)


def test_noise_is_shown() -> None:
    times = iter([0, 0, 10, 20, 0, 10, 20, 20, 40, 50, 50, 60, 70])
    trial = Trial(Setting(SNAPPY), [b"abc" * 1000], 0.0, lambda: float(next(times)))
    for _ in range(3):
        trial.run()
    assert trial.measured(Work("t", [], KIB, [], 1), [1]).spread == 1.0


def test_slow_settings_get_less_to_do_and_say_so() -> None:
    ticks = count(0, 100)
    trial = Trial(Setting(GZIP, 9), [b"x" * 100] * 50, 150.0, lambda: float(next(ticks)))
    trial.run()
    found = trial.measured(Work("t", [], KIB, [], 1), [3] * 50)
    assert (found.batches, found.records) == (2, 6), "two take more than a round's 150 ms"


# Advice


def test_costs_are_those_of_the_rate() -> None:
    cost = cost_of(measured("zstd", 4.0, 100), Load(rate=50e6, replicas=3, consumers=2))
    assert cost.producer_cores == pytest.approx(0.5)
    assert cost.recompress_cores == pytest.approx(0.5)
    assert cost.broker_cores == pytest.approx(0.125)
    assert cost.consumer_cores == pytest.approx(0.25)
    assert cost.network_bytes_s == pytest.approx(50e6 / 4 * 5)
    assert cost.disk_bytes_s == pytest.approx(50e6 / 4 * 3)
    plain = cost_of(measured("none", 1, 0), Load(rate=50e6))
    assert (plain.producer_cores, plain.broker_cores, plain.disk_bytes_s) == (0, 0, 150e6)


def test_the_way_of_a_byte_is_its_work_and_its_links() -> None:
    found = way_seconds(measured("lz4", 2.0, 500), Load(replicas=3, consumers=1, link=100e6))
    assert found * 1e6 == pytest.approx(1 / 500 + 2 / 2000 + 4 / 2 / 100)


USUAL = [
    measured("none", 1, 0),
    measured("gzip", 3.1, 40),
    measured("snappy", 1.9, 450),
    measured("lz4", 2.0, 500),
    measured("zstd", 3.0, 250),
    measured("zstd:9", 3.4, 30),
]


@pytest.mark.parametrize(
    ("goal", "load", "wanted"),
    [
        ("throughput", Load(), "lz4"),
        ("size", Load(), "zstd 9"),
        ("balanced", Load(), "zstd"),
        ("balanced", Load(link=400e6), "lz4"),
        ("balanced", Load(link=1e6), "zstd 9"),
        ("balanced", Load(link=1e12), "none"),
    ],
)
def test_what_to_take_depends_on_the_goal_and_the_link(goal: str, load: Load, wanted: str) -> None:
    advice = advise(USUAL, goal, load)
    assert advice.best.setting.label == wanted
    assert advice.reason
    found = advice.properties
    assert found["compression.type"] == wanted.split()[0]
    assert found.get("compression.zstd.level") == ("9" if wanted == "zstd 9" else None)


def test_of_nearly_the_same_size_the_fastest_is_taken() -> None:
    near = [measured("zstd", 3.0, 250), measured("gzip", 3.04, 40)]
    assert advise(near, "size", Load()).best.setting.label == "zstd"


@pytest.mark.parametrize("goal", ["throughput", "size", "balanced"])
def test_what_cannot_be_compressed_is_left_as_it_is(goal: str) -> None:
    found = [measured("none", 1, 0), measured("lz4", 0.99, 900), measured("zstd", 1.02, 800)]
    advice = advise(found, goal, Load())
    assert advice.best.setting.codec == NONE
    assert "zstd: 1.02" in advice.reason


def test_what_counts_is_the_batch_of_kafkas_producers() -> None:
    assert reference_bytes([measured("lz4", 2, 1, size) for size in (1 * KIB, 16 * KIB, 64 * KIB)]) == 16 * KIB
    assert reference_bytes([measured("lz4", 2, 1, size) for size in (1 * KIB, 64 * KIB)]) == 1 * KIB
    other = [measured("lz4", 2, 500, 16 * KIB), measured("zstd", 9, 500, 64 * KIB), measured("zstd", 1, 500, 16 * KIB)]
    assert advise(other, "size", Load()).best.setting.codec == LZ4


def test_the_articles_are_held_against_what_was_measured() -> None:
    rows = [
        *[measured("snappy", 1.9, 450, size) for size in (1 * KIB, 16 * KIB)],
        *[measured("zstd", 3.0, 250, size) for size in (1 * KIB, 16 * KIB)],
        measured("lz4", 1.95, 300, 1 * KIB, 0.02),
        measured("lz4", 2.0, 460, 16 * KIB, 0.2),
        *[measured("gzip", 3.1, 40, size) for size in (1 * KIB, 16 * KIB)],
        measured("zstd:1", 1.0, 9999),  # not the default: the articles do not mean it
    ]
    found = {(each.figure, each.expected): each for each in compare(rows)}
    assert len(found) == 6
    assert found["throughput", "lz4 > snappy"].measured == "no difference at 16 KiB, the other way at 1 KiB"
    assert found["throughput", "snappy > zstd"].measured == "holds"
    gzip = found["ratio", "lz4 > gzip"]
    assert gzip.measured == "the other way"
    assert (gzip.first, gzip.second) == pytest.approx((2.0, 3.1), rel=1e-4)


def test_without_a_codec_its_expectations_are_left_out() -> None:
    assert [each.figure for each in compare([measured("lz4", 2, 500), measured("snappy", 1.9, 400)])] == ["throughput"]


# Words


@pytest.mark.parametrize(
    ("text", "wanted"), [("16KiB", 16384), ("1MiB", 1 << 20), ("50MB", 50_000_000), ("1000", 1000), ("2g", 2 * 10**9)]
)
def test_sizes_are_read(text: str, wanted: int) -> None:
    assert size_of("--rate", text) == wanted


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5MB", "10Q", "0", "²"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="--rate"):
        size_of("--rate", text)


def test_settings_are_read_and_wrong_ones_explained() -> None:
    assert settings_of("none, lz4,zstd:9") == [Setting(NONE), Setting(LZ4), Setting(ZSTD, 9)]
    for text, words in (("brotli", "there is no codec"), ("gzip:12", "outside 1..9"), ("snappy:1", "no compression")):
        with pytest.raises(OptionError, match=words):
            settings_of(text)


# The report


def test_the_report_is_one_page_that_needs_nothing_else() -> None:
    rows = [row._replace(batch_bytes=size) for row in USUAL for size in (1 * KIB, 16 * KIB, 1024 * KIB)]
    advice = {"orders": advise(rows, "balanced", Load())}
    tables = _tables({"orders": rows}, advice, Load())
    html = codecs_report("Codecs for orders", "A sample.", advice, tables)
    page = Tree.fromstring(html.removeprefix("<!DOCTYPE html>\n"))
    sources = [each.attrib["href"] for each in page.iter("a") if each.attrib["href"].startswith("https://")]
    assert len(sources) == html.count("https:") > 1, "articles are cited by links, and nothing else is fetched"
    assert not re.search(r"http:|<script|<link|@import|url\(|src=", html)
    charts = [each for each in page.iter() if each.attrib.get("role") == "img"]
    assert len(charts) == 4
    labels = [each.attrib["title"] for each in charts[0].iter("span")]
    assert labels == ["zstd 9", "gzip", "zstd", "lz4", "snappy", "none"], "by their ratio"
    words = "".join(page.itertext())
    for text in ("compression.type=zstd", "lz4 > gzip", "the other way", "validate", "Huffman", "zstd 9"):
        assert text in words, text
    widths = {table.name: max(map(len, table.as_text().splitlines())) for table in tables}
    assert widths["measured"] < 100, "a terminal shows it"


def test_what_the_samples_lack_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic_of(tmp_path, some_records(200))
    promise(tmp_path, {("orders", 0): 201})
    path = tmp_path / "orders-0/00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    monkeypatch.setattr("minibroker.spark.jobs.codecs.run_tasks", lambda spark, do, works: [do(work) for work in works])
    source = {"path": str(tmp_path), "subscribe": "orders", "mode": "skip", "failOnDataLoss": "false"}
    found = codecs(None, source=source, settings=[Setting(LZ4)], batch_bytes=[KIB, 4 * KIB], seconds=0)
    lost, broken = found.problems
    assert lost.startswith("data loss, orders-0 in ")
    assert broken.startswith("left out orders-0, offsets 0 to 49, byte 0 of ")
    assert found.status == 1


@pytest.mark.interop
@pytest.mark.slow
def test_the_job_measures_on_spark(spark: Session, tmp_path: Path) -> None:
    topic_of(tmp_path / "data", some_records(1500))
    topic_of(tmp_path / "data", some_records(300, 2), "other-0")
    place = tmp_path / "report.html"
    found = spark.call(
        "tests.spark.jobs.running:codecs",
        source={"path": str(tmp_path / "data"), "subscribePattern": ".*"},
        html=str(place),
        codec="gzip,snappy,lz4,zstd",
        batch_bytes=[2 * KIB, 16 * KIB],
    )
    summary: dict[str, Any] = json.loads(found["json"])
    assert {(row["topic"], row["codec"], row["batch_bytes"]) for row in summary["measured"]} == {
        (topic, codec, size)
        for topic in ("orders", "other")
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
        for size in (2 * KIB, 16 * KIB)
    }
    assert [row["topic"] for row in summary["recommended"]] == ["orders", "other"]
    assert len(summary["articles"]) == 12
    assert len(summary["costs"]) == 20
    assert sum("take compression.type=" in note for note in summary["notes"]) == 2
    assert found["status"] == 0
    assert "balanced" in found["text"]
    Tree.fromstring(place.read_text().removeprefix("<!DOCTYPE html>\n"))

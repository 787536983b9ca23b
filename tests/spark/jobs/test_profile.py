"""profile: every figure is that of an independent count, however the records are spread over tasks."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as Tree
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from minibroker import Broker
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.spark.jobs.profile_findings import findings
from minibroker.spark.jobs.profile_keys import KEPT, Keys, hashes, shown
from minibroker.spark.jobs.profile_report import report
from minibroker.spark.jobs.profile_sizes import Sizes
from minibroker.spark.jobs.profile_stretch import Stretch
from minibroker.spark.jobs.profile_tables import Profile, tables
from minibroker.spark.options import parse
from tests.goldens import LOG_DIRECTORIES, log_meaning
from tests.interop.random_logs import RandomLog
from tests.spark.jobs.counting import Truth, expected, profile_of, tables_of
from tests.spark.logs import START_MS, asked, golden_directory, open_at, read, written
from tests.spark.session import Session

NOW_MS = START_MS + 20_000
WHOLE, PIECES = {}, {"maxBytesPerPartition": 200}


def check(found: dict[str, Any], wanted: dict[str, Any], topic: str) -> None:
    for name, rows in wanted.items():
        assert [row for row in found[name] if row["topic"] == topic] == rows, name


@pytest.mark.parametrize("options", [WHOLE, PIECES], ids=["whole", "pieces"])
@pytest.mark.parametrize("name", LOG_DIRECTORIES)
def test_what_kafka_wrote_is_counted(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    root = golden_directory(tmp_path, name)
    found = tables_of(profile_of(asked(root, subscribePattern=".*", **options), NOW_MS))
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
        if any(truth.end_offset > starts[each] for each, truth in truths.items()):
            check(found, expected(topic, truths, starts), topic)
            checked += 1
    assert checked > 5


@pytest.mark.parametrize("seed", range(12))
def test_random_logs_are_counted_in_any_pieces(seed: int, tmp_path: Path) -> None:
    log, chance = RandomLog(tmp_path, seed), Random(seed)
    for _ in range(chance.randint(1, 4)):
        log.grow()
        log.open()
    log.log.close()
    truth = Truth(log.path, NOW_MS)
    wanted = expected("random", {0: truth}, {})
    for options in (WHOLE, PIECES, *([{"maxBytesPerPartition": 1}] if seed < 2 else [])):
        profile = profile_of(asked(tmp_path, "random", **options), NOW_MS)
        check(tables_of(profile), wanted, "random")
        sizes = {row["what"]: row for row in tables_of(profile)["sizes"]}
        for what, numbers in truth.sizes.items():
            row = sizes[what]
            ends = row["count"], row["smallest"], row["largest"], row["mean"]
            assert ends == (len(numbers), min(numbers), max(numbers), round(sum(numbers) / len(numbers), 3)), what


@pytest.mark.parametrize("seed", range(6))
def test_what_isolation_hides_is_counted_as_hidden(seed: int, tmp_path: Path) -> None:
    log = RandomLog(tmp_path, seed)
    log.magic = 2
    log.grow()
    log.grow()
    log.log.close()
    told = {"kafka_isolation_level": "read_committed", **PIECES}
    rows = read(tmp_path, "random", **told)
    (row,) = tables_of(profile_of(asked(tmp_path, "random", **told), NOW_MS))["gaps"]
    assert row["offsets"] - row["without_record"] == len(rows)
    assert row["removed"] == row["without_record"] - row["control_records"] - row["hidden"]
    everything = read(tmp_path, "random", endingOffsets=row["offsets"])
    assert row["hidden"] == len(everything) - len(rows)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:minibroker.Broker")
def test_brokers_give_the_figures_of_their_directories(tmp_path: Path) -> None:
    root = golden_directory(tmp_path / "files", "kraft39-2-after-clean")
    served = Path(shutil.copytree(root, tmp_path / "served"))
    wanted = tables_of(profile_of(asked(root, subscribePattern=".*"), NOW_MS))
    with Broker(data_dir=served, log_retention_ms=-1) as broker:
        told = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribePattern": ".*"}
        found = tables_of(profile_of(parse(told), NOW_MS))
    assert {row["topic"] for row in found["topics"]} == {row["topic"] for row in wanted["topics"]}
    assert found == wanted


def test_several_partitions_are_one_topic(tmp_path: Path) -> None:
    written(tmp_path, 300, "orders-0", per_batch=10, codec=4)
    written(tmp_path, 100, "orders-1", per_batch=4)
    truths = {number: Truth(tmp_path / f"orders-{number}", NOW_MS) for number in (0, 1)}
    found = tables_of(profile_of(asked(tmp_path, **PIECES), NOW_MS))
    check(found, expected("orders", truths, {}), "orders")
    assert found["keys"][0]["partition_skew"] == 1.5
    assert {row["codec"] for row in found["codecs"]} == {"none", "zstd"}


def test_a_range_is_counted_by_its_offsets_and_batches_where_they_end(tmp_path: Path) -> None:
    written(tmp_path, 100, per_batch=10)
    options = asked(tmp_path, startingOffsets=5, endingOffsets=33, **PIECES)
    (row,) = tables_of(profile_of(options, NOW_MS))["partitions"]
    assert (row["first_offset"], row["end_offset"], row["records"], row["batches"]) == (5, 33, 28, 3)


def test_a_broken_batch_is_told_and_the_rest_is_counted(tmp_path: Path) -> None:
    written(tmp_path, 100, per_batch=10, segment_bytes=1 << 20)
    path = next((tmp_path / "orders-0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2 + 70] ^= 1  # in the records of the sixth of ten batches of one size
    path.write_bytes(data)
    profile = profile_of(asked(tmp_path, mode="skip"), NOW_MS)
    assert len(profile.counts.left_out) == 1
    assert "orders-0" in profile.counts.left_out[0]
    assert tables_of(profile)["topics"][0]["records"] == 90


# Keys


def counted(keys: list[bytes | None], exact_max: int, pieces: int) -> Keys:
    whole = Keys(exact_max)
    size = -(-len(keys) // pieces)
    for begin in range(0, len(keys), size):
        part = Keys(exact_max)
        for at in range(begin, min(begin + size, len(keys)), 997):
            part.add(pa.array(keys[at : min(at + 997, begin + size)], pa.binary()))
        whole.merge(part)
    return whole


def many_keys(seed: int) -> list[bytes | None]:
    chance = Random(seed)
    some = [b"often-%d" % (n % 7) for n in range(20_000)] + [b"%d" % chance.randrange(1 << 40) for _ in range(40_000)]
    keys: list[bytes | None] = [*some, *[None] * 500]
    chance.shuffle(keys)
    return keys


@pytest.mark.parametrize("pieces", [1, 5, 40])
def test_keys_are_counted_one_by_one_as_long_as_there_are_few(pieces: int) -> None:
    keys = many_keys(1)
    found, wanted = counted(keys, 1 << 20, pieces), Counter(key for key in keys if key is not None)
    assert found.is_exact
    assert found.counts == wanted
    assert (found.nulls, found.count, found.distinct, found.missed) == (500, 60_000, len(wanted), 0)


@pytest.mark.parametrize("pieces", [1, 5, 40])
def test_of_many_keys_their_number_is_estimated_and_the_frequent_ones_are_kept(pieces: int) -> None:
    keys = many_keys(2)
    found, wanted = counted(keys, 2000, pieces), Counter(key for key in keys if key is not None)
    assert not found.is_exact
    assert found.count == 60_000
    assert found.distinct == pytest.approx(len(wanted), rel=0.03)
    top = dict(found.top(7))
    assert set(top) == {b"often-%d" % n for n in range(7)}
    for key, count in top.items():
        assert count <= wanted[key] <= count + found.missed
    assert found.missed < 500
    assert len(found.counts) <= 4 * KEPT


def test_what_was_dropped_of_a_key_is_known() -> None:
    rare, often = Keys(10), Keys(10)
    rare.add(pa.array([b"key", *[b"%d" % (n // 2) for n in range(2 * KEPT + 200)]], pa.binary()))
    often.add(pa.array([b"key"] * 5000, pa.binary()))
    whole = Keys(10)
    whole.merge(rare)
    whole.merge(often)
    assert b"key" not in rare.counts
    assert whole.top(1) == [(b"key", 5000)]
    assert whole.missed > rare.missed > 0


def test_a_hash_does_not_depend_on_what_lies_behind_the_key() -> None:
    first, second = hashes(pa.array([b"abc", b"x"], pa.binary())), hashes(pa.array([b"abc", b"yy"], pa.binary()))
    assert first[0] == second[0]
    assert first[1] != second[1]


def test_hashes_differ_where_keys_do() -> None:
    keys = [b"a" * n for n in range(40)] + [b"\0" * n for n in range(1, 40)] + [b"%d" % n for n in range(20_000)]
    assert len(set(hashes(pa.array(keys, pa.binary())).tolist())) == len(keys)
    sliced = pa.array([b"x", *keys], pa.binary())[1:]
    assert (hashes(sliced) == hashes(pa.array(keys, pa.binary()))).all()


def test_long_keys_are_told_apart_and_held_in_short() -> None:
    keys = Keys()
    keys.add(pa.array([b"a" * 5000 + b"%d" % (n % 3) for n in range(30)], pa.binary()))
    assert keys.distinct == 3
    assert max(map(len, keys.counts)) < 100


@pytest.mark.parametrize(
    ("key", "text"), [(b"user-1", "user-1"), (b"\xff\x00", "0xff00"), ("grün".encode(), "grün"), (b"a\nb", "0x610a62")]
)
def test_keys_are_shown_as_text_if_they_are(key: bytes, text: str) -> None:
    assert shown(key) == text
    assert len(shown(key * 100)) <= 60


# Sizes, and what depends on the order


@pytest.mark.parametrize("seed", range(5))
def test_a_distribution_is_near_that_of_all_numbers(seed: int) -> None:
    chance = Random(seed)
    numbers = sorted(chance.randrange(1 << chance.randrange(1, 40)) for _ in range(3000))
    parts = [Sizes(), Sizes()]
    for index, part in enumerate(parts):
        part.add(np.array(numbers[index::2], np.int64))
    parts[0].merge(parts[1])
    for share in (0.01, 0.5, 0.9, 0.99, 1.0):
        wanted = numbers[max(int(np.ceil(share * len(numbers))) - 1, 0)]
        assert wanted <= (parts[0].percentile(share) or 0) <= wanted * 9 / 8 + 1
    for low, high, count in parts[0].histogram():
        assert count == sum(low <= number <= high for number in numbers)
    assert sum(count for _, _, count in parts[0].histogram()) == len(numbers)


def test_a_histogram_of_near_sizes_has_finer_steps() -> None:
    sizes = Sizes()
    sizes.add(np.arange(1000, 1400, dtype=np.int64))
    rows = sizes.histogram()
    assert len(rows) > 3
    assert rows[0][0] <= 1000
    assert rows[-1][1] >= 1399
    assert all(later[0] == earlier[1] + 1 for earlier, later in pairwise(rows))


@pytest.mark.parametrize("seed", range(20))
def test_stretches_are_the_same_wherever_they_are_cut(seed: int) -> None:
    chance = Random(seed)
    offsets = np.array(sorted(chance.sample(range(400), 150)), np.int64)
    times = np.array([chance.choice([-1, chance.randrange(50)]) for _ in offsets], np.int64)
    whole = Stretch()
    whole.add_rows(offsets, times)
    joined = Stretch()
    borders = [0, *sorted(chance.sample(range(150), 6)), 150]
    for begin, end in pairwise(borders):
        part = Stretch()
        part.add_rows(offsets[begin:end], times[begin:end])
        joined.then(part)
    names = [name for name in Stretch.__slots__ if name != "endings"]
    assert {name: getattr(joined, name) for name in names} == {name: getattr(whole, name) for name in names}


# What it looks like


def orders(root: Path) -> Profile:
    """Return a profile of a topic in which much stands out."""
    log = open_at(root, segment_bytes=1 << 20)
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
    return profile_of(asked(root), START_MS)


def test_what_stands_out_is_said(tmp_path: Path) -> None:
    said = "\n".join(findings(orders(tmp_path)))
    for words in (
        "The key hot has 39.8 %",
        "Batches are small",
        "stored without compression",
        "in the future",
        "1970-01-01",
        "older than the one before",
        "transactions without an end",
    ):
        assert words in said, said


def test_nothing_stands_out_of_a_quiet_topic(tmp_path: Path) -> None:
    written(tmp_path, 3000, per_batch=1000, codec=4, segment_bytes=1 << 20)
    assert findings(profile_of(asked(tmp_path), START_MS * 2)) == []


def test_the_report_is_one_page_that_needs_nothing_else(tmp_path: Path) -> None:
    profile = orders(tmp_path)
    html = report(profile, findings(profile), tables(profile), NOW_MS)
    page = Tree.fromstring(html.removeprefix("<!DOCTYPE html>\n"))
    assert not re.search(r"https?:|<script|<link|@import|url\(|src=", html)
    charts = [svg for svg in page.iter("svg") if svg.attrib.get("role") == "img"]
    assert len(charts) >= 7
    assert all(svg.find("title") is not None and svg.attrib["aria-label"] for svg in charts)
    captions = ["".join(each.itertext()) for each in page.iter("figcaption")]
    for start in ("Records per", "Most frequent keys", "Sizes of values", "Sizes of batches", "Stored bytes by codec"):
        assert any(caption.startswith(start) for caption in captions), start
    folded = [each for each in page.iter("figure") if each.find("details") is not None]
    assert len(folded) == len(list(page.iter("figure")))
    words = "".join(page.itertext())
    assert "3,000" in words
    assert "What stands out" in words
    assert "hot" in words


def test_a_page_of_nothing_can_be_made(tmp_path: Path) -> None:
    open_at(tmp_path).close()
    profile = profile_of(asked(tmp_path), NOW_MS)
    assert Tree.fromstring(report(profile, [], tables(profile), NOW_MS).removeprefix("<!DOCTYPE html>\n")) is not None


# On Spark


@pytest.mark.interop
@pytest.mark.slow
def test_the_job_counts_on_spark(spark: Session, tmp_path: Path) -> None:
    for number in range(3):
        written(tmp_path / "data", 400 + 100 * number, f"orders-{number}", per_batch=10)
    told = {"path": str(tmp_path / "data"), "subscribe": "orders", "maxBytesPerPartition": "3000"}
    place = tmp_path / "made" / "report.html"
    found = spark.call("tests.spark.jobs.running:profile", source=told, html=str(place), now_ms=NOW_MS)
    summary = json.loads(found["json"])
    truths = {number: Truth(tmp_path / "data" / f"orders-{number}", NOW_MS) for number in range(3)}
    check(summary, expected("orders", truths, {}), "orders")
    assert (summary["job"], summary["records"], summary["problems"], found["status"]) == ("profile", 1500, [], 0)
    assert summary["notes"][-1] == f"the report is {place}"
    Tree.fromstring(place.read_text().removeprefix("<!DOCTYPE html>\n"))
    assert "records" in found["text"]
    assert "... and" not in found["text"]

"""What the job leaves of a log is what the broker's cleaner leaves, byte for byte; and a broker can go on with it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from minibroker.cleaner.candidates import cleanable
from minibroker.cleaner.cleaner import clean
from minibroker.client import Cluster, Producer
from minibroker.in_pieces import finish
from minibroker.log.checkpoints import CLEANER_OFFSETS, HIGH_WATERMARKS, read_offsets
from minibroker.log.directory import LogDirectory
from minibroker.log.settings import LogSettings
from minibroker.log.storage import OsStorage
from minibroker.spark.jobs import compact as job
from minibroker.spark.jobs.arguments import TopicFilter
from minibroker.spark.jobs.command import parser_of
from minibroker.spark.jobs.compact_keys import Keys, keys_of
from minibroker.spark.jobs.directory_in import SourceDirectory
from minibroker.spark.option_values import OptionError
from minibroker.tools.verify.log_directory import VerifiedCounts, verify_directory
from tests.cleaner.dirty_logs import NOW_MS, DirtyLog
from tests.spark.jobs.test_verify import here
from tests.spark.logs import one_by_one, tree
from tests.spark.served import served
from tests.spark.session import Session

KINDS = (".log", ".index", ".timeindex", ".txnindex")


class DiskLog(DirtyLog):
    """A log in a broker's directory."""

    def __init__(self, root: Path, **settings: Any):
        self.now_ms = NOW_MS
        self.root = root
        self.settings = made(**settings)
        self.sequences = {}
        self.begin()

    def begin(self) -> None:
        self.directory = LogDirectory(OsStorage(str(self.root)))
        self.directory.start()
        self.log = self.directory.open("t", 0, self.settings, now_ms=self.now_ms, topic_id=bytes(15) + b"\1")

    def end_all(self, high_watermark: int | None = None) -> None:
        self.directory.close({("t", 0): self.log.log_end_offset if high_watermark is None else high_watermark})

    def clean_as_broker(self) -> None:
        """Do what the broker's cleaner does when somebody asks."""
        log, directory = self.log, self.directory
        high_watermark = directory.high_watermarks.get(("t", 0), log.log_end_offset)
        log.producers.on_high_watermark_updated(high_watermark)
        found = cleanable(
            log,
            first_dirty_offset=directory.cleaner_offsets.get(("t", 0)),
            last_stable_offset=log.last_stable_offset(high_watermark),
            now_ms=self.now_ms,
            high_watermark=high_watermark,
        )
        if found.end <= log.segments[0].base_offset:
            return
        cleaned = finish(clean(log, found, now_ms=self.now_ms, map_bytes_max=1 << 20))
        directory.cleaner_offsets["t", 0] = cleaned.end_offset
        directory.write_cleaner_offsets()


def made(**settings: Any) -> LogSettings:
    return LogSettings(
        **{
            "segment_bytes": 700,
            "index_interval_bytes": 150,
            "segment_index_bytes": 240,
            "compact": True,
            "delete": False,
            "delete_retention_ms": 1000,
        }
        | settings
    )


def superseded_here(spark: Any, works: Sequence[Keys]) -> dict[int, dict[int, bytes]]:
    """What Spark makes of the keys, one after the other."""
    rows = [row for work in works for batch in keys_of(work) for row in zip(*batch.to_pydict().values(), strict=True)]
    last: dict[tuple[int, bytes], int] = {}
    for log, key, offset, tells in rows:
        if key is not None and tells:
            last[log, key] = max(offset, last.get((log, key), -1))
    found: dict[int, dict[int, bytearray]] = {}
    for log, key, offset, _ in rows:
        if key is None or last.get((log, key), -1) > offset:
            bits = found.setdefault(log, {}).setdefault(offset >> 15, bytearray(4096))
            bits[(offset & 32767) >> 3] |= 1 << (offset & 7)
    return {log: {bucket: bytes(bits) for bucket, bits in each.items()} for log, each in found.items()}


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "run_tasks", here)
    monkeypatch.setattr(job, "find_superseded", superseded_here)


def segment_files(root: Path) -> dict[str, bytes]:
    """Return the segments of a log; of the indexes what they are when they are cut to their length."""
    return {path.name: path.read_bytes() for path in sorted((root / "t-0").iterdir()) if path.suffix in KINDS}


def problems_in(storage: OsStorage) -> list[str]:
    return [str(problem) for problem in verify_directory(storage, VerifiedCounts())]


def fill(dirty: DiskLog, chance: Random, steps: int) -> None:
    """Write what a compacted log may hold: all formats and codecs, transactions, tombstones, records without key."""
    is_open: set[int] = set()
    for _ in range(steps):
        dirty.now_ms += chance.randint(0, 300)
        action = chance.random()
        pairs: list[tuple[Any, Any]] = [
            (
                chance.choice([b"a", b"b", b"c", b"d", b"e", b"long" * 20]),
                chance.choice([None, b"x" * chance.randint(0, 40)]),
            )
            for _ in range(chance.randint(1, 5))
        ]
        if action < 0.3:
            dirty.put(*pairs, codec=chance.choice([0, 0, 1, 3]), gap=chance.choice([0, 0, 0, 9]))
        elif action < 0.4 and not is_open:
            dirty.put((None, b"no key"), *pairs, magic=chance.choice([0, 1, 2]), codec=chance.choice([0, 1]))
        elif action < 0.75:
            producer_id = chance.choice([11, 12, 13])
            dirty.send(producer_id, *pairs, transactional=producer_id != 13)
            is_open |= {producer_id} - {13}
        elif action < 0.93 and is_open:
            producer_id = chance.choice(sorted(is_open))
            dirty.end(producer_id, commit=chance.random() < 0.5)
            is_open.discard(producer_id)
        else:
            dirty.roll()


def compacted(root: Path, target: Path, dirty: DiskLog, **more: Any) -> Any:
    return job.compact(None, str(root), str(target), wanted=TopicFilter(["t"]), now_ms=dirty.now_ms, **more)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_segments_are_those_of_the_cleaner(
    seed: int, tmp_path: Path, without_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = Random(seed)
    dirty = DiskLog(tmp_path / "data")
    settings = dirty.settings
    monkeypatch.setattr(SourceDirectory, "settings_of", lambda self, topic: settings)
    fill(dirty, chance, chance.randint(10, 60))
    for turn in range(3):  # also what has been cleaned before, and tombstones whose time is over
        if chance.random() < 0.3:
            settings.min_compaction_lag_ms = 3000
        dirty.end_all()
        shutil.copytree(tmp_path / "data", tmp_path / f"broker{turn}")
        before = tree(tmp_path / "data")
        compacted(tmp_path / "data", tmp_path / f"job{turn}", dirty)
        assert tree(tmp_path / "data") == before
        theirs = DiskLog.__new__(DiskLog)
        theirs.root, theirs.settings, theirs.now_ms = tmp_path / f"broker{turn}", settings, dirty.now_ms
        theirs.sequences = {}
        theirs.begin()
        theirs.clean_as_broker()
        theirs.end_all()
        assert segment_files(tmp_path / f"job{turn}") == segment_files(theirs.root)
        ours, kept = (OsStorage(str(tmp_path / f"{name}{turn}")) for name in ("job", "broker"))
        for name in (CLEANER_OFFSETS, HIGH_WATERMARKS):
            assert read_offsets(ours, name) == read_offsets(kept, name)
        # Old formats in between have made the log forget its epochs; that is in both.
        assert problems_in(ours) == problems_in(kept)
        # Go on with what the job made.
        dirty.root = tmp_path / f"job{turn}"
        shutil.rmtree(tmp_path / "data")
        shutil.copytree(dirty.root, tmp_path / "data")
        dirty.root = tmp_path / "data"
        dirty.begin()
        fill(dirty, chance, chance.randint(5, 30))
        dirty.now_ms += chance.choice([0, 2000])
    dirty.end_all()


@pytest.mark.parametrize("takes_all", [False, True])
def test_the_active_segment_stays_unless_all_is_asked_for(
    takes_all: bool, tmp_path: Path, without_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    dirty = DiskLog(tmp_path / "data", segment_bytes=10_000)
    monkeypatch.setattr(SourceDirectory, "settings_of", lambda self, topic: dirty.settings)
    dirty.put_all("a1 b1")
    dirty.roll()
    dirty.put_all("a2 a3")
    dirty.end_all()
    summary = compacted(tmp_path / "data", tmp_path / "new", dirty, takes_all=takes_all)
    rows = [(row[0], row[3], row[4]) for row in one_by_one(tmp_path / "new/t-0")]
    kept = [(1, b"b", b"1"), (3, b"a", b"3")]
    assert rows == (kept if takes_all else [(0, b"a", b"1"), kept[0], (2, b"a", b"2"), kept[1]])
    assert summary.table("logs").rows[0][:3] == ["t-0", 4 if takes_all else 2, 4]
    assert read_offsets(OsStorage(str(tmp_path / "new")), CLEANER_OFFSETS) == {("t", 0): 4 if takes_all else 2}
    assert problems_in(OsStorage(str(tmp_path / "new"))) == []


def test_one_run_does_what_takes_a_broker_with_a_small_map_several(
    tmp_path: Path, without_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    dirty = DiskLog(tmp_path / "data")
    monkeypatch.setattr(SourceDirectory, "settings_of", lambda self, topic: dirty.settings)
    chance = Random(1)
    for number in range(150):
        dirty.put((b"key %d" % chance.randrange(60), b"%d" % number))
    dirty.end_all()
    compacted(tmp_path / "data", tmp_path / "new", dirty)
    dirty.begin()
    ends = []
    while not ends or ends[-1] < dirty.log.active.base_offset:
        ends.append(dirty.clean(ends[-1] if ends else None, map_bytes_max=3000).end_offset)
    assert len(ends) > 2
    dirty.end_all()
    assert one_by_one(tmp_path / "new/t-0") == one_by_one(tmp_path / "data/t-0")


def test_records_without_a_key_that_are_left_out_are_problems(tmp_path: Path, without_spark: None) -> None:
    dirty = DiskLog(tmp_path / "data")
    for codec in (0, 1):
        dirty.put((None, b"1"), (b"a", b"2"), (None, b"3"), codec=codec)
    dirty.put((None, b"4"), (b"a", b"5"), magic=1)
    dirty.roll()
    dirty.put((b"b", b"6"))
    dirty.end_all()
    done = compacted(tmp_path / "data", tmp_path / "new", dirty)
    assert done.problems == ["t-0: 5 records without a key are left out, as Kafka's cleaner leaves them out"]
    assert done.status == 1


def test_a_log_ends_at_the_high_watermark(tmp_path: Path, without_spark: None, monkeypatch: pytest.MonkeyPatch) -> None:
    dirty = DiskLog(tmp_path / "data", segment_bytes=150)
    monkeypatch.setattr(SourceDirectory, "settings_of", lambda self, topic: dirty.settings)
    dirty.put_all("a1 b1 a2 b2 a3 b3 a4 b4")
    dirty.end_all(5)
    compacted(tmp_path / "data", tmp_path / "new", dirty)
    assert [(row[0], row[3]) for row in one_by_one(tmp_path / "new/t-0")] == [(2, b"a"), (3, b"b"), (4, b"a")]
    assert problems_in(OsStorage(str(tmp_path / "new"))) == []


def test_a_place_that_is_taken_is_refused_and_what_was_left_is_cleared(
    tmp_path: Path, without_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    dirty = DiskLog(tmp_path / "data")
    monkeypatch.setattr(SourceDirectory, "settings_of", lambda self, topic: dirty.settings)
    dirty.put_all("a1 a2")
    dirty.end_all()
    with pytest.raises(OptionError, match="is not empty"):
        compacted(tmp_path / "data", tmp_path / "data", dirty)
    with pytest.raises(OptionError, match="lies within"):
        compacted(tmp_path / "data", tmp_path / "data/new", dirty)
    left = tmp_path / "new.staged"  # of a job that was killed
    (left / "t-0").mkdir(parents=True)
    (left / "t-0/00000000000000000007.log").write_bytes(b"half")

    def refuse(*_: Any) -> list[Any]:
        raise RuntimeError("a disk refuses")

    monkeypatch.setattr(job, "run_tasks", refuse)
    with pytest.raises(RuntimeError, match="a disk refuses"):
        compacted(tmp_path / "data", tmp_path / "new", dirty)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]
    monkeypatch.setattr(job, "run_tasks", here)
    (left / "t-0").mkdir(parents=True)
    compacted(tmp_path / "data", tmp_path / "new", dirty)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "new"]
    assert not [path for path in (tmp_path / "new").rglob("*") if path.name.endswith((".cleaned", ".tmp"))]


def test_a_broken_batch_ends_it_and_is_named(
    tmp_path: Path, without_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    dirty = DiskLog(tmp_path / "data", segment_bytes=150)
    monkeypatch.setattr(SourceDirectory, "settings_of", lambda self, topic: dirty.settings)
    dirty.put_all("a1 b1 a2 b2 a3")
    dirty.end_all()
    path = tmp_path / "data/t-0/00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(Exception, match=f"t-0/{path.name}"):
        compacted(tmp_path / "data", tmp_path / "new", dirty)
    assert not (tmp_path / "new").exists()


# With Spark and a broker


def run_job(spark: Any, words: list[str]) -> Any:
    from minibroker.spark.jobs.progress import Progress

    summary = job.run(spark, parser_of("compact").parse_args(words), Progress(spark, False))
    return json.loads(summary.as_json())


async def produce(root: Path, topics: dict[str, dict[str, object]], count: int, keys: int) -> None:
    """Let a broker make topics, and send them numbers."""
    async with served(root) as broker:
        for topic, configs in topics.items():
            await broker.acreate_topic(topic, 1, **configs)
        async with Cluster(broker.bootstrap_servers) as cluster, Producer(cluster) as producer:
            for topic in topics:
                sent = [producer.send(topic, b"%d" % number, key=b"k%d" % (number % keys)) for number in range(count)]
                await asyncio.gather(*sent)


@pytest.mark.slow
@pytest.mark.interop
def test_a_broker_goes_on_with_what_spark_has_compacted(spark: Session, tmp_path: Path) -> None:
    asyncio.run(produce(tmp_path / "data", {"prices": {"cleanup_policy": "compact"}, "other": {}}, 60, 7))
    words = ["--path", str(tmp_path / "data"), "--to", str(tmp_path / "new"), "--all"]
    summary = spark.call("tests.spark.jobs.test_compact:run_job", words=words)
    assert (summary["logs compacted"], summary["logs copied"]) == (1, 1)
    assert (summary["records before"], summary["records"]) == (60, 7)
    assert problems_in(OsStorage(str(tmp_path / "new"))) == []
    due = sorted((b"k%d" % key, b"%d" % max(range(key, 60, 7))) for key in range(7))
    rows = spark.rows("minibroker", path=str(tmp_path / "new"), subscribe="prices")
    assert sorted((bytes.fromhex(row[0]), bytes.fromhex(row[1])) for row in rows) == due
    with served(tmp_path / "new") as broker:
        assert sorted((record.key, record.value) for record in broker.records("prices")) == due
        assert len(broker.records("other")) == 60

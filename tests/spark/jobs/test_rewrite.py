"""Records survive a conversion as far as the format can hold them, and the new directory is one of a broker."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minibroker.client import Cluster, Producer
from minibroker.errors import ProtocolError
from minibroker.log.batches import batches
from minibroker.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    format_offsets,
    read_offsets,
)
from minibroker.log.compression import CODEC_NAMES
from minibroker.log.directory import LogDirectory
from minibroker.log.settings import LogSettings
from minibroker.log.storage import OsStorage
from minibroker.spark.jobs import rewrite as job
from minibroker.spark.jobs.arguments import TopicFilter
from minibroker.spark.jobs.command import parser_of
from minibroker.spark.option_values import OptionError
from minibroker.tools.verify.log_directory import VerifiedCounts, verify_directory
from tests.cleaner.dirty_logs import NOW_MS, DirtyLog
from tests.interop import kafka
from tests.interop.test_kafka_reads_our_logs import complaints
from tests.log.written import write_logs
from tests.spark.jobs.test_verify import here
from tests.spark.logs import every_batch, one_by_one, promise, tree, written
from tests.spark.served import served
from tests.spark.session import Session


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "run_tasks", here)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("logs")
    write_logs(OsStorage(str(root)))
    return root


class DiskLog(DirtyLog):
    """A log in a broker's directory."""

    def __init__(self, root: Path, **settings: Any):
        self.now_ms = NOW_MS
        self.settings = LogSettings(**settings)
        self.sequences = {}
        self.directory = LogDirectory(OsStorage(str(root)))
        self.directory.start()
        self.log = self.directory.open("t", 0, self.settings, now_ms=self.now_ms, topic_id=bytes(15) + b"\1")

    def end_all(self) -> None:
        self.directory.close({("t", 0): self.log.log_end_offset})


def problems_in(root: Path) -> list[str]:
    return [str(problem) for problem in verify_directory(OsStorage(str(root)), VerifiedCounts())]


def names_in(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir())


WAYS = [
    (None, "zstd", 3),
    (None, "none", None),
    (None, "gzip", 9),
    (2, None, None),
    (2, "lz4", None),
    (1, "snappy", None),
    (1, "none", None),
    (0, "gzip", None),
    (0, "lz4", None),
]


@pytest.mark.parametrize(("magic", "codec", "level"), WAYS)
def test_records_stay_as_far_as_the_format_holds_them(
    magic: int | None, codec: str | None, level: int | None, logs: Path, tmp_path: Path, without_spark: None
) -> None:
    before = tree(logs)
    if codec == "zstd":  # old messages cannot have it
        wanted = TopicFilter(pattern="^(format2|appendtime2|recompress|epochs|txn|open|trimmed|late|empty)$")
    else:
        wanted = TopicFilter()
    new, names = tmp_path / "new", names_in(logs)
    summary = job.rewrite(None, str(logs), str(new), magic=magic, codec=codec, level=level, wanted=wanted)
    assert tree(logs) == before
    assert names_in(new) == names
    assert problems_in(new) == []
    for name in names:
        if not wanted.wants(name.rpartition("-")[0], 0):
            continue
        made = list(every_batch(new / name))
        for batch in made:
            batch.check_crc()
        if magic is not None:
            assert {batch.magic for batch in made} <= {magic}
        if codec is not None:
            assert {CODEC_NAMES[batch.codec] for batch in made if not batch.is_control} <= {codec}
        is_old = magic is not None and magic < 2
        due = one_by_one(logs / name, read_committed=is_old)
        found = one_by_one(new / name)
        assert [(row[0], row[3], row[4]) for row in found] == [(row[0], row[3], row[4]) for row in due]
        if not is_old:
            assert [row[5] for row in found] == [row[5] for row in due]
        if magic != 0:
            assert [row[1] for row in found] == [row[1] for row in due]
    paths = [path for name in names if wanted.wants(name.rpartition("-")[0], 0) for path in (new / name).glob("*.log")]
    assert summary.figures["bytes"] == sum(path.stat().st_size for path in paths)


def test_what_is_lost_is_told(logs: Path, tmp_path: Path, without_spark: None) -> None:
    wanted = TopicFilter(["txn", "open", "format2"])
    summary = job.rewrite(None, str(logs), str(tmp_path / "new"), magic=0, codec="gzip", wanted=wanted, only=True)
    batches = [batch for name in ("txn-0", "open-0", "format2-0") for batch in every_batch(logs / name)]
    lost = dict(summary.table("lost").rows)
    assert lost["headers"] == sum(len(record.headers) for batch in batches for record in batch.records())
    markers: Any = lost["markers"]
    assert 0 < markers <= sum(batch.is_control for batch in batches)
    assert lost["aborted batches"]
    assert lost["producer batches"]
    assert lost["timestamps"]
    assert names_in(tmp_path / "new") == ["format2-0", "open-0", "txn-0"]
    stable = read_offsets(OsStorage(str(tmp_path / "new")), HIGH_WATERMARKS)
    assert stable["open", 0] < read_offsets(OsStorage(str(logs)), HIGH_WATERMARKS)["open", 0]
    assert any("end before their last record" in note for note in summary.notes)


def test_up_again_is_the_same_but_for_what_was_lost(logs: Path, tmp_path: Path, without_spark: None) -> None:
    job.rewrite(None, str(logs), str(tmp_path / "old"), magic=1, codec="gzip")
    job.rewrite(None, str(tmp_path / "old"), str(tmp_path / "new"), magic=2)
    assert problems_in(tmp_path / "new") == []
    for name in names_in(logs):
        due = [row[:5] for row in one_by_one(logs / name, read_committed=True)]
        found = [row[:5] for row in one_by_one(tmp_path / "new" / name)]
        assert [(*row[:2], *row[3:]) for row in found] == [(*row[:2], *row[3:]) for row in due]


def test_what_becomes_larger_than_a_segment_is_cut(tmp_path: Path, without_spark: None) -> None:
    log = DiskLog(tmp_path / "data", segment_bytes=1 << 20, segment_index_bytes=1 << 16)
    for _ in range(40):
        log.put((b"key", b"x" * 50_000), codec=1)
    log.send(7, (b"k", b"v"))
    log.end(7, commit=False)
    log.end_all()
    config = {"segment.bytes": str(1 << 20)}
    job.rewrite(None, str(tmp_path / "data"), str(tmp_path / "new"), codec="none", settings=config)
    paths = sorted((tmp_path / "new/t-0").glob("*.log"))
    assert [int(path.stem) for path in paths] == [0, 20]
    assert all(path.stat().st_size <= 1 << 20 for path in paths)
    assert problems_in(tmp_path / "new") == []
    assert [path.stem for path in (tmp_path / "new/t-0").glob("*.txnindex")] == [paths[-1].stem]
    assert len(one_by_one(tmp_path / "new/t-0")) == 41


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "nothing is to be done"),
    ({"magic": 1, "codec": "zstd"}, "format 1 does not know it"),
    ({"level": 3, "magic": 2}, "--level is of a codec"),
    ({"codec": "gzip", "level": 30}, "gzip level 30 is outside"),
    ({"codec": "snappy", "level": 3}, "snappy has no compression levels"),
    ({"codec": "brotli"}, "it can be none, gzip"),
    ({"codec": "gzip", "wanted": TopicFilter(["fromat2"])}, "did you mean format2"),
]


@pytest.mark.parametrize(("asked", "due"), REFUSED)
def test_what_cannot_be_is_refused_before_anything_is_read(
    asked: dict[str, Any], due: str, logs: Path, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match=due):
        job.rewrite(None, str(logs), str(tmp_path / "new"), **asked)
    assert not list(tmp_path.iterdir())


def test_zstd_must_be_told_another_codec_on_its_way_down(logs: Path, tmp_path: Path, without_spark: None) -> None:
    with pytest.raises(ProtocolError, match="zstd, which format 1 does not know: say another codec"):
        job.rewrite(None, str(logs), str(tmp_path / "new"), magic=1, wanted=TopicFilter(["format2"]))
    assert not list(tmp_path.iterdir())


def test_a_broken_batch_ends_it_and_is_named(logs: Path, tmp_path: Path, without_spark: None) -> None:
    shutil.copytree(logs / "txn-0", tmp_path / "data/txn-0")
    path = sorted((tmp_path / "data/txn-0").glob("*.log"))[1]
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(ProtocolError, match=f"txn-0/{path.name}"):
        job.rewrite(None, str(tmp_path / "data"), str(tmp_path / "new"), codec="gzip")
    assert [each.name for each in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("segment_bytes", [1000, 1 << 20])
@pytest.mark.parametrize("offset", [0, 44, 45, 49, 51, 80, 95, 100, 1 << 20])
def test_a_batch_that_cannot_be_where_it_is_ends_it(
    offset: int, segment_bytes: int, tmp_path: Path, without_spark: None
) -> None:
    written(tmp_path / "data", 100, per_batch=5, segment_bytes=segment_bytes)
    promise(tmp_path / "data", {("orders", 0): 100})
    path = tmp_path / f"data/orders-0/{40 if segment_bytes == 1000 else 0:020}.log"
    data = bytearray(path.read_bytes())
    position = next(batch.position for batch in batches(bytes(data)) if batch.base_offset == 45)
    data[position : position + 8] = offset.to_bytes(8, "big")
    path.write_bytes(data)
    if offset == 45:
        assert job.rewrite(None, str(tmp_path / "data"), str(tmp_path / "new"), codec="gzip").problems == []
        return
    with pytest.raises(ProtocolError, match=r"cannot be here|does not fit"):
        job.rewrite(None, str(tmp_path / "data"), str(tmp_path / "new"), codec="gzip")


KILLED = """
import os, signal, sys
from minibroker.spark.jobs import rewrite

def run_tasks(spark, function, works):
    for work in works[:2]:
        function(work)
    os.kill(os.getpid(), signal.SIGKILL)

rewrite.run_tasks = run_tasks
rewrite.rewrite(None, sys.argv[1], sys.argv[2], codec="gzip")
"""


def test_a_job_that_is_killed_leaves_what_the_next_one_clears_away(
    logs: Path, tmp_path: Path, without_spark: None
) -> None:
    new = tmp_path / "new"
    assert subprocess.run([sys.executable, "-c", KILLED, str(logs), str(new)]).returncode == -signal.SIGKILL
    assert [each.name for each in tmp_path.iterdir()] == ["new.staged"]
    assert list((tmp_path / "new.staged").rglob("*.log.*.cleaned"))
    job.rewrite(None, str(logs), str(new), codec="gzip")
    assert [each.name for each in tmp_path.iterdir()] == ["new"]
    assert names_in(new) == names_in(logs)
    assert problems_in(new) == []


def test_a_place_that_is_taken_is_refused_and_a_job_that_fails_leaves_nothing(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> list[Any]:
        raise RuntimeError("a disk refuses")

    source = shutil.copytree(logs, tmp_path / "data")
    before = tree(source)
    monkeypatch.setattr(job, "run_tasks", refuse)
    for target, due in (("data", "is not empty"), ("data/new", "lies within"), ("new", "a disk refuses")):
        with pytest.raises((OptionError, RuntimeError), match=due):
            job.rewrite(None, str(source), str(tmp_path / target), codec="gzip")
        assert [each.name for each in tmp_path.iterdir()] == ["data"]
        assert tree(source) == before
    (tmp_path / "new.staged").mkdir()
    other = OsStorage(str(tmp_path / "new.staged"))
    other.lock()
    with pytest.raises(OptionError, match="another job is writing it"):
        job.rewrite(None, str(source), str(tmp_path / "new"), codec="gzip")
    other.unlock()


def test_a_log_ends_at_the_high_watermark_and_keeps_what_is_known_up_to_there(
    logs: Path, tmp_path: Path, without_spark: None
) -> None:
    """Also where a broker is at work: batches behind it, half of one, and no mark of a clean stop."""
    source = shutil.copytree(logs, tmp_path / "data")
    (source / CLEAN_SHUTDOWN).unlink()
    promised = read_offsets(OsStorage(str(source)), HIGH_WATERMARKS)
    ends = {key: offset for key, offset in promised.items() if key[0] in ("txn", "epochs", "format1", "trimmed")}
    for name, _ in ends:
        path = max((source / f"{name}-0").glob("*.log"))
        bases = [
            batch.header_offset for batch in every_batch(source / f"{name}-0") if batch.magic == 2 or not batch.codec
        ]
        ends[name, 0] = next(base for base in reversed(bases) if base < ends[name, 0] - 3)
        path.write_bytes(path.read_bytes() + bytes(7))
    (source / HIGH_WATERMARKS).write_bytes(format_offsets({**promised, **ends}))
    (source / CLEANER_OFFSETS).write_bytes(format_offsets({("txn", 0): promised["txn", 0], ("epochs", 0): 2}))
    summary = job.rewrite(
        None, str(source), str(tmp_path / "new"), codec="gzip", wanted=TopicFilter(["txn", "trimmed"])
    )
    assert (summary.figures["logs rewritten"], summary.table("logs").rows[1][:2]) == (2, ["txn-0", ends["txn", 0]])
    assert any(note.startswith("2 logs end before") for note in summary.notes)
    assert problems_in(tmp_path / "new") == []
    for (name, _), end in ends.items():
        due = [row for row in one_by_one(logs / f"{name}-0") if row[0] < end]
        assert [row[:5] for row in one_by_one(tmp_path / f"new/{name}-0")] == [row[:5] for row in due]
    new = OsStorage(str(tmp_path / "new"))
    assert read_offsets(new, HIGH_WATERMARKS) == {**promised, **ends}
    assert read_offsets(new, LOG_STARTS) == read_offsets(OsStorage(str(logs)), LOG_STARTS)
    assert read_offsets(new, CLEANER_OFFSETS) == {("txn", 0): ends["txn", 0], ("epochs", 0): 2}


def test_a_high_watermark_before_the_start_is_raised_to_it(logs: Path, tmp_path: Path, without_spark: None) -> None:
    source = shutil.copytree(logs, tmp_path / "data")
    promised = read_offsets(OsStorage(str(source)), HIGH_WATERMARKS)
    (source / HIGH_WATERMARKS).write_bytes(format_offsets({**promised, ("trimmed", 0): 3}))
    job.rewrite(None, str(source), str(tmp_path / "new"), codec="gzip", wanted=TopicFilter(["trimmed"]), only=True)
    new = OsStorage(str(tmp_path / "new"))
    assert read_offsets(new, HIGH_WATERMARKS) == read_offsets(new, LOG_STARTS) == {("trimmed", 0): 17}
    assert problems_in(tmp_path / "new") == []


def test_a_broker_at_work_is_told_of(logs: Path, tmp_path: Path, without_spark: None) -> None:
    source = tmp_path / "data"
    asyncio.run(produce(source, 20))
    with served(source) as broker:
        summary = job.rewrite(None, str(source), str(tmp_path / "new"), codec="gzip")
        assert [note for note in summary.notes if "no broker has stopped in order" in note]
        assert len(broker.records("orders")) == 20
    with served(tmp_path / "new") as broker:
        broker.records("orders")
    again = job.rewrite(None, str(source), str(tmp_path / "more"), codec="gzip", only=True)
    assert again.notes == [f"the new directory is {tmp_path / 'more'}"]
    assert len(one_by_one(tmp_path / "more/orders-0")) == 20
    assert not (tmp_path / "more/meta.properties").exists()


async def produce(root: Path, count: int) -> None:
    """Let a broker make the topic orders, and send it numbers."""
    async with served(root) as broker:
        await broker.acreate_topic("orders", 1)
        async with Cluster(broker.bootstrap_servers) as cluster, Producer(cluster) as producer:
            sent = [producer.send("orders", b"%d" % number, key=b"k%d" % number) for number in range(count)]
            await asyncio.gather(*sent)


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    """Leave one batch."""
    path.write_bytes(path.read_bytes()[: next(batches(path.read_bytes())).size_bytes])


def remove_all(path: Path) -> None:
    for each in path.parent.glob(f"{path.stem}.*"):
        each.unlink()


@pytest.mark.parametrize(
    ("place", "harm", "problem", "note"),
    [
        (-1, empty, "should reach to 100, its high watermark, and ends at 80", ""),
        (-1, cut, "should reach to 100, its high watermark, and ends at 85", ""),
        (1, empty, "the segment that begins at 40 is empty, and its indexes are not", "40 offsets"),
        (1, remove, "the segment that begins at 40 is not there, and its indexes are", "40 offsets"),
        (0, remove, "", "orders-0: of the segments that begin at 0 only indexes are left: deleted, or lost?"),
        (1, cut, "00000000000000000040.log has been cut: its index names batches behind its end", "35 offsets"),
        (1, remove_all, "", "orders-0: 40 offsets have no record, and nobody notes a cleaning: is a segment missing?"),
    ],
)
def test_what_a_log_has_lost_is_told(
    place: int, harm: Callable[[Path], None], problem: str, note: str, tmp_path: Path, without_spark: None
) -> None:
    written(tmp_path / "data", 100, per_batch=5)
    promise(tmp_path / "data", {("orders", 0): 100})
    paths = sorted((tmp_path / "data/orders-0").glob("*.log"))
    assert [int(path.stem) for path in paths] == [0, 40, 80]
    harm(paths[place])
    summary = job.rewrite(None, str(tmp_path / "data"), str(tmp_path / "new"), codec="gzip")
    assert (summary.status, len(summary.problems)) == ((1, 1) if problem else (0, 0))
    assert problem in "".join(summary.problems)
    assert len(summary.notes) == (3 if note else 2)
    assert note in summary.notes[-1]


def test_bytes_that_are_no_batch_are_told_where_the_stop_was_clean(
    logs: Path, tmp_path: Path, without_spark: None
) -> None:
    source = shutil.copytree(logs, tmp_path / "data")
    path = max((source / "trimmed-0").glob("*.log"))
    path.write_bytes(path.read_bytes() + bytes(7))
    summary = job.rewrite(None, str(source), str(tmp_path / "new"), codec="gzip")
    (problem,) = summary.problems
    assert "trimmed-0 in" in problem
    assert "the last 7 bytes are no whole batch" in problem


# With Spark, brokers, and Kafka's own eyes


def run_job(spark: Any, words: list[str]) -> Any:
    from minibroker.spark.jobs.progress import Progress

    summary = job.run(spark, parser_of("rewrite").parse_args(words), Progress(spark, False))
    return json.loads(summary.as_json())


@pytest.mark.slow
@pytest.mark.interop
def test_a_broker_goes_on_with_what_was_converted(spark: Session, tmp_path: Path) -> None:
    asyncio.run(produce(tmp_path / "data", 60))
    path, call = str(tmp_path / "new"), "tests.spark.jobs.test_rewrite:run_job"
    words = ["--path", str(tmp_path / "data"), "--to", path, "--format", "1", "--codec", "lz4"]
    assert spark.call(call, words=words)["logs rewritten"] == 1
    rows = spark.rows("minibroker", path=path, subscribe="orders")
    assert sorted(int(bytes.fromhex(row[1])) for row in rows) == list(range(60))
    release = kafka.DUMPS[-1]
    paths = [each for each in sorted((tmp_path / "new").glob("orders-*/*.log")) if each.stat().st_size]
    files = ",".join(str(each.with_suffix(suffix)) for each in paths for suffix in (".log", ".index", ".timeindex"))
    told = kafka.run(release, release.dump_class, "--deep-iteration", "--files", files, cwd=tmp_path)
    assert (told.returncode, complaints(told.stderr)) == (0, [])
    assert "isvalid: false" not in told.stdout
    assert told.stdout.count("| offset:") == 60
    with served(tmp_path / "new") as broker:
        assert sorted(int(record.value or b"") for record in broker.records("orders")) == list(range(60))

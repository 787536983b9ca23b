"""The job finds what `minibroker verify` finds, whoever reads what; replicas that differ are told apart."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from minibroker.log.build import build_batch
from minibroker.log.checkpoints import CLEANER_OFFSETS, format_offsets
from minibroker.log.records import Record
from minibroker.log.storage import OsStorage
from minibroker.spark.jobs import verify as job
from minibroker.spark.jobs.arguments import TopicFilter
from minibroker.spark.jobs.command import parser_of
from minibroker.spark.option_values import OptionError
from minibroker.tools.verify.log_directory import VerifiedCounts, verify_directory
from tests.goldens import LOG_DIRECTORIES
from tests.log.written import write_logs
from tests.spark.logs import START_MS, golden_directory, open_at, promise, tree, written
from tests.spark.session import Session
from tests.tools.verify.test_log_directory import DAMAGE, FIRST, change, cut


def here(spark: Any, function: Callable[[Any], Any], works: Sequence[Any]) -> list[Any]:
    """Do without Spark what it does: everything goes to another process and comes back."""
    return [pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(work))))) for work in works]


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "run_tasks", here)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("logs")
    write_logs(OsStorage(str(root)))
    return root


@pytest.fixture
def directory(logs: Path, tmp_path: Path) -> Path:
    return shutil.copytree(logs, tmp_path / "logs")


def by_broker(root: Path) -> tuple[list[str], dict[str, int]]:
    verified = VerifiedCounts()
    problems = verify_directory(OsStorage(str(root)), verified, own_name=root.name)
    return sorted(f"{root}/{problem}".replace("//", "/") for problem in problems), vars(verified)


def check_same(root: Path, piece_bytes: int) -> list[str]:
    """Compare the job with the command; return the problems."""
    due, counts = by_broker(root)
    before = tree(root)
    summary = job.verify(None, [str(root)], piece_bytes=piece_bytes)
    assert sorted(summary.problems) == due
    assert [summary.figures[name] for name in ("logs", "segments", "batches", "records", "bytes")] == [
        counts[name] for name in ("logs", "segments", "batches", "records", "size_bytes")
    ]
    assert summary.status == bool(due)
    assert tree(root) == before
    return due


PIECES = [1 << 20, 150]


@pytest.mark.parametrize("piece_bytes", PIECES)
@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_found_where_the_command_finds_it(what: str, piece_bytes: int, directory: Path) -> None:
    name, damage, _ = DAMAGE[what]
    damage(directory / name)
    assert check_same(directory, piece_bytes)


@pytest.mark.parametrize("piece_bytes", PIECES)
@pytest.mark.parametrize(
    ("pattern", "damage"),
    [
        ("*.txnindex", change(-1, b"\x33")),
        ("*.txnindex", Path.unlink),
        ("*.snapshot", change(-1, b"\x33")),
        ("*.log", change(60, b"\x63")),
        ("*.log", cut),
        ("*.timeindex", change(-9, b"\x33")),
        ("*.index", change(-1, b"\x33")),
    ],
)
def test_so_is_damage_among_transactions(
    pattern: str, damage: Callable[[Path], object], piece_bytes: int, directory: Path
) -> None:
    damage(max((directory / "txn-0").glob(pattern)))
    assert check_same(directory, piece_bytes)


@pytest.mark.parametrize("piece_bytes", PIECES)
def test_nothing_is_found_in_what_is_in_order(piece_bytes: int, directory: Path) -> None:
    assert check_same(directory, piece_bytes) == []


@pytest.mark.parametrize("name", LOG_DIRECTORIES)
def test_of_kafkas_own_directories_the_same_is_said(name: str, tmp_path: Path) -> None:
    check_same(golden_directory(tmp_path, name), 1000)


def test_a_log_that_lies_alone(directory: Path) -> None:
    shutil.copy(min((directory / "txn-0").glob("*.snapshot")), max((directory / "txn-0").glob("*.snapshot")))
    assert check_same(directory / "txn-0", 300)


@pytest.mark.slow
def test_every_byte_may_be_flipped(tmp_path: Path) -> None:
    """Each byte of a log with producers and an index of several entries, one after the other."""
    log = open_at(tmp_path, index_interval_bytes=200, segment_bytes=2000)
    for number in range(12):
        log.append_as_follower(batch(number, number), now_ms=START_MS)
    log.close()
    paths = [path for path in sorted((tmp_path / "orders-0").iterdir()) if path.suffix in (".log", ".index")]
    for path in paths:
        whole = path.read_bytes()
        for at in range(0, len(whole), 7):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x11]) + whole[at + 1 :])
            check_same(tmp_path, 400)
        path.write_bytes(whole)


# Sequence numbers


def batch(offset: int, sequence: int, *, producer_epoch: int = 0, count: int = 1, epoch: int = 0) -> bytes:
    records = [Record(b"k", b"%d" % offset, (), START_MS + offset, offset + number) for number in range(count)]
    return build_batch(
        2,
        records,
        base_offset=offset,
        producer_id=7,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        partition_leader_epoch=epoch,
    )


SEQUENCES = [
    ([(0, 0), (1, 1), (2, 1)], "producer 7: sequence 1 to 1 comes again, it is at offset 1 already"),
    ([(0, 0), (1, 1), (2, 3)], "producer 7: sequence 3 comes where 2 is due"),
    ([(0, 0), (1, 2), (2, 1)], "is due"),
    ([(0, 5), (1, 6), (2, 7)], ""),  # what was before may have been deleted
    ([(0, 0), (5, 5), (6, 6)], ""),  # cleaning has been there
    ([(0, 0), (5, 5), (6, 5)], "producer 7: sequence 5 to 5 comes again, it is at offset 5 already"),
    ([(0, 0x7FFFFFFF), (1, 0), (2, 1)], ""),
]


@pytest.mark.parametrize("segment_bytes", [10_000, 1])  # all in one segment, and each in its own
@pytest.mark.parametrize(("rows", "due"), SEQUENCES)
def test_sequences_that_come_again_or_out_of_order_are_found(
    rows: list[tuple[int, int]], due: str, segment_bytes: int, tmp_path: Path
) -> None:
    log = open_at(tmp_path, segment_bytes=segment_bytes, index_interval_bytes=1)
    for offset, sequence in rows:
        log.append_as_follower(batch(offset, sequence), now_ms=START_MS)
    log.close()
    for piece_bytes in (10_000, 80):
        problems = check_same(tmp_path, piece_bytes)
        assert [text for text in problems if due and due in text] == problems
        assert bool(due) == bool(problems)


def test_an_epoch_of_before_is_found_and_a_new_one_begins_at_0(tmp_path: Path) -> None:
    log = open_at(tmp_path, segment_bytes=1)
    for offset, sequence, producer_epoch in [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 7, 2)]:
        log.append_as_follower(batch(offset, sequence, producer_epoch=producer_epoch), now_ms=START_MS)
    log.close()
    assert [text.partition("producer")[2] for text in check_same(tmp_path, 100)] == [
        " 7: epoch 0 comes behind 1",
        " 7: sequence 7 comes where 0 is due",
    ]


# What is asked for


def test_topics_that_were_asked_for(directory: Path) -> None:
    (directory / f"format2-0/{FIRST}.index").unlink()
    assert job.verify(None, [str(directory)], wanted=TopicFilter(["txn"])).figures["logs"] == 1
    summary = job.verify(None, [str(directory)], wanted=TopicFilter(pattern="^format"))
    assert (summary.figures["logs"], len(summary.problems)) == (3, 1)
    assert summary.table("logs").rows[-1][-1] == 1
    with pytest.raises(OptionError, match="did you mean format2"):
        job.verify(None, [str(directory)], wanted=TopicFilter(["fromat2"]))


# Replicas


@pytest.fixture
def replicas(tmp_path: Path) -> tuple[Path, Path]:
    """The same records in segments of other sizes."""
    for name, segment_bytes in (("leader", 1000), ("follower", 700)):
        written(tmp_path / name, 60, per_batch=3, segment_bytes=segment_bytes)
        promise(tmp_path / name, {("orders", 0): 60})
    return tmp_path / "leader", tmp_path / "follower"


class Compared(NamedTuple):
    problems: list[str]
    notes: list[str]
    figures: dict[str, int]
    rows: list[list[Any]]
    status: int


@pytest.fixture
def compared(spark: Session) -> Callable[..., Compared]:
    def compare(leader: Path, *followers: Path) -> Compared:
        words = ["--path", str(leader), *(word for each in followers for word in ("--against", str(each)))]
        done = spark.call("tests.spark.jobs.test_verify:run_job", words=words)
        told = done["summary"]
        return Compared(
            told["problems"], told["notes"], told, [[*row.values()] for row in told["replicas"]], done["status"]
        )

    return compare


Comparing = Callable[..., Compared]


@pytest.mark.slow
@pytest.mark.interop
def test_replicas_with_other_segments_are_the_same(replicas: tuple[Path, Path], compared: Comparing) -> None:
    leader, follower = replicas
    summary = compared(leader, follower, leader)
    assert summary.problems == []
    assert summary.rows[0] == ["orders-0", str(follower), 0, 60, 20, summary.figures["bytes"] // 2, None]
    assert summary.figures["logs compared"] == 2


@pytest.mark.slow
@pytest.mark.interop
def test_the_first_batch_that_differs_is_named(replicas: tuple[Path, Path], compared: Comparing) -> None:
    leader, follower = replicas
    path, behind = sorted((follower / "orders-0").glob("*.log"))[1:3]
    change(-1, b"\x09")(path)
    change(-1, b"\x09")(behind)
    summary = compared(leader, follower)
    (problem,) = summary.problems
    offset = int(behind.stem) - 3
    assert f"orders-0 differs from offset {offset} on" in problem
    assert f"{path} has {offset} to {offset + 2} of epoch -1 at byte" in problem
    assert "is not the checksum of the bytes" in problem
    assert problem.count(" bytes, checksum ") == 2
    assert summary.rows[0][-1] == offset
    assert summary.status == 1


@pytest.mark.slow
@pytest.mark.interop
def test_what_no_checksum_covers_is_compared_too(replicas: tuple[Path, Path], compared: Comparing) -> None:
    leader, follower = replicas
    change(15, b"\x05")(min((follower / "orders-0").glob("*.log")))
    (problem,) = compared(leader, follower).problems
    assert "has 0 to 2 of epoch -1 at byte 0" in problem
    assert "has 0 to 2 of epoch -251 at byte 0" in problem


@pytest.mark.slow
@pytest.mark.interop
def test_bytes_that_are_no_batch_are_told(replicas: tuple[Path, Path], compared: Comparing) -> None:
    leader, follower = replicas
    path = sorted((follower / "orders-0").glob("*.log"))[1]
    change(8, b"\x7f")(path)
    (problem,) = compared(leader, follower).problems
    assert f"orders-0 differs from offset {int(path.stem)} on: {leader}" in problem
    assert f"{path} cannot be read at byte 0" in problem


@pytest.mark.slow
@pytest.mark.interop
def test_what_is_missing_at_the_end_counts_only_below_both_high_watermarks(
    replicas: tuple[Path, Path], compared: Comparing
) -> None:
    leader, follower = replicas
    log = open_at(follower, segment_bytes=700)
    log.truncate_to(45)
    log.close()
    assert compared(leader, follower).problems == []  # it ends there
    promise(follower, {("orders", 0): 30})
    assert compared(leader, follower).rows[0][2:5] == [0, 30, 10]


@pytest.mark.slow
@pytest.mark.interop
def test_a_hole_in_a_follower_is_found(replicas: tuple[Path, Path], compared: Comparing) -> None:
    leader, follower = replicas
    gone = sorted((follower / "orders-0").glob("*.log"))[1]
    gone.unlink()
    (problem,) = compared(leader, follower).problems
    assert f"orders-0 differs from offset {int(gone.stem)} on" in problem
    assert problem.endswith(f"{follower}/orders-0 has nothing there")


@pytest.mark.slow
@pytest.mark.interop
def test_of_batches_with_other_borders_both_are_told(tmp_path: Path, compared: Comparing) -> None:
    """The first that differ overlap; what differs far behind them is not taken for the same place."""
    for name, per_batch in (("leader", 3), ("follower", 5)):
        written(tmp_path / name, 15, per_batch=per_batch)
    (problem,) = compared(tmp_path / "leader", tmp_path / "follower").problems
    assert "orders-0 differs from offset 0 on: " in problem
    assert "has 0 to 2 of epoch -1 at byte 0" in problem
    assert "has 0 to 4 of epoch -1 at byte 0" in problem


@pytest.mark.slow
@pytest.mark.interop
def test_what_was_cleaned_is_not_compared(replicas: tuple[Path, Path], compared: Comparing) -> None:
    leader, follower = replicas
    change(-1, b"\x09")(min((follower / "orders-0").glob("*.log")))
    assert compared(leader, follower).problems
    (follower / CLEANER_OFFSETS).write_bytes(format_offsets({("orders", 0): 30}))
    summary = compared(leader, follower)
    assert summary.problems == []
    assert summary.rows[0][2] == 30


@pytest.mark.slow
@pytest.mark.interop
def test_a_leader_that_only_one_knows_is_told(tmp_path: Path, compared: Comparing) -> None:
    for name, epoch in (("leader", 1), ("follower", 2)):
        log = open_at(tmp_path / name)
        for offset in range(8):
            log.append_as_follower(batch(offset, offset, epoch=0 if offset < 5 else epoch), now_ms=START_MS)
        log.close()
        promise(tmp_path / name, {("orders", 0): 8})
    problems = compared(tmp_path / "leader", tmp_path / "follower").problems
    assert [text.partition(":")[0] for text in problems] == [
        "orders-0",
        "orders-0",
        "orders-0 differs from offset 5 on",
    ]
    assert "of epoch 1 at byte" in problems[-1]
    assert "of epoch 2 at byte" in problems[-1]


@pytest.mark.slow
@pytest.mark.interop
def test_logs_that_a_follower_does_not_have_are_noted(replicas: tuple[Path, Path], compared: Comparing) -> None:
    leader, follower = replicas
    written(leader, 5, "more-0")
    assert compared(leader, follower).notes == [f"1 of 2 logs are not in {follower}"]


# With Spark


def run_job(spark: Any, words: list[str]) -> Any:
    from minibroker.spark.jobs.progress import Progress

    summary = job.run(spark, parser_of("verify").parse_args(words), Progress(spark, False))
    return {"status": summary.status, "summary": json.loads(summary.as_json()), "text": summary.as_text()}


@pytest.mark.slow
@pytest.mark.interop
def test_tasks_of_spark_find_it(spark: Session, directory: Path) -> None:
    call = "tests.spark.jobs.test_verify:run_job"
    change(100, b"\xff\xfe")(directory / f"format2-0/{FIRST}.log")
    broken = spark.call(call, words=["--path", str(directory), "--piece-bytes", "2000"])
    due, _ = by_broker(directory)
    assert (broken["status"], sorted(broken["summary"]["problems"])) == (1, due)

"""Each kind of damage is found, and named with its file; what is in order is not complained about."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minibroker.cli import main
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.log.recovery import open_log
from minibroker.log.settings import LogSettings
from minibroker.log.storage import OsStorage
from minibroker.tools.verify.log_directory import VerifiedCounts, verify_directory
from tests.log.written import write_logs


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("written")
    write_logs(OsStorage(str(root)))
    return root


@pytest.fixture
def directory(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "logs")


def contents(directory: Path) -> dict[str, bytes]:
    return {path.as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def change(at: int, data: bytes) -> Callable[[Path], object]:
    """Put other bytes in a place; from the end if it is negative."""

    def apply(path: Path) -> None:
        was = bytearray(path.read_bytes())
        at_start = at % len(was)
        assert was[at_start : at_start + len(data)] != data
        was[at_start : at_start + len(data)] = data
        path.write_bytes(was)

    return apply


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def swap(old: str, new: str) -> Callable[[Path], object]:
    def apply(path: Path) -> None:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return apply


def make(path: Path) -> None:
    path.write_bytes(b"")


FIRST = "00000000000000000000"
DAMAGE = {
    "a broken checksum": (f"format2-0/{FIRST}.log", change(100, b"\xff\xfe"), "CRC"),
    "an offset that comes again": (f"format1-0/{FIRST}.log", change(7, b"\x40"), "is due"),
    "a log that ends within a batch": (f"format2-0/{FIRST}.log", cut, "bytes"),
    "a leader epoch that falls": (f"epochs-0/{FIRST}.log", change(15, b"\x09"), "leader epoch"),
    "an index entry that points into a batch": (f"format2-0/{FIRST}.index", change(7, b"\x01"), "no batch begins at"),
    "an index that names another offset": (f"format2-0/{FIRST}.index", change(3, b"\x7f"), "entry 0"),
    "an index that ends within an entry": (f"format2-0/{FIRST}.index", cut, "ends within an entry"),
    "an index without its segment": (f"format2-0/{7:020}.index", make, f"there is no {7:020}.log"),
    "a missing index": (f"format2-0/{FIRST}.index", Path.unlink, "is missing"),
    "a wrong time": (f"format2-0/{FIRST}.timeindex", change(5, b"\x01"), "largest so far"),
    "a missing time index": (f"format2-0/{FIRST}.timeindex", Path.unlink, "is missing"),
    "a leader epoch that begins elsewhere": ("epochs-0/leader-epoch-checkpoint", swap("0 0", "0 2"), "leader epoch"),
    "an epoch file that is none": ("epochs-0/leader-epoch-checkpoint", swap("0 0", "x 0"), "leader-epoch-checkpoint"),
    "an id that is none": ("txn-0/partition.metadata", swap("topic_id", "topic"), "topic_id"),
    "properties that are none": ("meta.properties", swap("version=1", "version=x"), "version"),
    "a log start behind the end": (
        "log-start-offset-checkpoint",
        swap("trimmed 0 17", "trimmed 0 999"),
        "behind the log's",
    ),
    "a log start before the epochs": (
        "log-start-offset-checkpoint",
        swap("trimmed 0 17", "trimmed 0 7"),
        "leader epoch",
    ),
    "a checkpoint of a log that is not there": ("replication-offset-checkpoint", swap("txn", "tnx"), "no such log"),
    "a recovery point before the end": (
        "recovery-point-offset-checkpoint",
        swap("empty 0 0", "txn 0 1"),
        "recovery-point",
    ),
    "cleaned behind the end": (
        "cleaner-offset-checkpoint",
        lambda path: path.write_text("0\n1\ntxn 0 99999\n"),
        "behind the log's",
    ),
    "a rest of cleaning": (f"txn-0/{FIRST}.log.cleaned", make, "is left of a crash"),
}

# Two files disagree, and the batch is named where they do.
BLAMED = {
    "a leader epoch that begins elsewhere": f"epochs-0/{FIRST}.log: batch at byte 0: leader epoch is 0, leader-",
    "a log start before the epochs": f"trimmed-0/{FIRST}.log: batch at byte ",
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_found_and_the_file_named(what: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, damage, due = DAMAGE[what]
    damage(directory / name)
    before = contents(directory)
    assert main(["verify", str(directory)]) == 1
    *problems, summary = capsys.readouterr().out.splitlines()
    stem = BLAMED.get(what, name.removesuffix(".log.cleaned"))
    assert [line for line in problems if line.startswith(f"{directory}/{stem}") and due.lower() in line.lower()], (
        problems
    )
    assert summary.endswith((": 1 problem", f": {len(problems)} problems"))
    assert contents(directory) == before


@pytest.mark.parametrize("producer_id", [-1, 7])
@pytest.mark.parametrize(
    ("offset", "wrong"), [(30, 94), (30, 31), (30, 29), (30, 0), (0, 64), (0, 1), (99, 98), (99, 35)]
)
def test_a_wrong_base_offset_is_one_problem_at_its_batch(
    offset: int, wrong: int, producer_id: int, tmp_path: Path
) -> None:
    log = open_log(OsStorage(str(tmp_path)), "t-0", LogSettings(index_interval_bytes=200))
    for each in range(100):
        sequence: dict[str, Any] = (
            {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": each} if producer_id >= 0 else {}
        )
        log.append_as_follower(build_batch(2, [Record(None, b"x", (), each)], base_offset=each, **sequence), now_ms=0)
    log.close()
    path = tmp_path / f"t-0/{FIRST}.log"
    data = path.read_bytes()
    position = len(data) // 100 * offset
    path.write_bytes(data[:position] + wrong.to_bytes(8, "big") + data[position + 8 :])
    (problem,) = verify_directory(OsStorage(str(tmp_path)), VerifiedCounts())
    assert str(problem) == f"t-0/{FIRST}.log: batch at byte {position}: offset {wrong} comes where {offset} is due"


def last(directory: Path, suffix: str) -> Path:
    return max(directory.glob(f"txn-0/*{suffix}"))


@pytest.mark.parametrize(
    ("suffix", "damage", "due"),
    [
        (".txnindex", change(-1, b"\x33"), "is not what the log gives"),
        (".txnindex", Path.unlink, "is missing"),
        (".txnindex", cut, "whole number of entries"),
        (".snapshot", change(-1, b"\x33"), "crc"),
        (".snapshot", lambda path: shutil.copy(min(path.parent.glob("*.snapshot")), path), "the log gives"),
    ],
)
def test_what_is_wrong_of_transactions_is_found(
    suffix: str, damage: Callable[[Path], object], due: str, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = last(directory, suffix)
    damage(path)
    assert main(["verify", str(directory / "txn-0")]) == 1
    problems = capsys.readouterr().out.splitlines()[:-1]
    assert [line for line in problems if line.startswith(str(path)) and due in line], problems


def test_one_log_and_a_whole_directory_without_problems(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(directory)
    assert main(["verify", str(directory)]) == 0
    assert capsys.readouterr().out == "13 logs, 44 segments, 35.8 KB, 818 records: no problems\n"
    assert main(["verify", f"{directory}/txn-0/", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["logs"], told["segments"], told["problems"]) == (1, 5, [])
    assert contents(directory) == before


def test_json_has_path_place_and_reason(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = directory / f"format2-0/{FIRST}.index"
    cut(path)
    assert main(["verify", str(path.parent), "--json"]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert {"path": str(path), "place": "byte 13", "reason": "ends within an entry of 8 bytes"} in problems


@pytest.mark.parametrize("where", ["nowhere", "."])
def test_what_holds_no_logs_is_wrong_usage(where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path / where)]) == 2
    assert capsys.readouterr().err.startswith("minibroker verify: ")

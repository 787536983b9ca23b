"""One byte of a directory is not what was written: whoever reads gets what was there, or an error, or `verify` tells.

After a clean stop nothing is scanned, so a log may answer wrongly until somebody looks; after an unclean one everything
is, and no wrong record may be left.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import NamedTuple

import pytest

from minibroker.errors import KafkaError, ProtocolError, StorageError
from minibroker.log.batches import batches
from minibroker.log.checkpoints import CLEAN_SHUTDOWN
from minibroker.log.directory import LogDirectory, split_name
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.partition_log import PartitionLog
from minibroker.tools.verify.log_directory import VerifiedCounts, verify_directory

from .answers import Answers, answers
from .audit import all_batches, audit
from .written import START_MS, settings, write_logs

Files = dict[str, bytes]
PARTS = [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 10))]
# What says whose a directory is, and not what is in it: a broker compares it with what the cluster says.
NAMES_ONLY = ("meta.properties", "partition.metadata")


class Written(NamedTuple):
    files: Files
    answers: dict[str, Answers]
    times: dict[str, list[int]]


@cache
def written(seed: int) -> Written:
    storage = MemoryStorage(int)
    write_logs(storage, seed)
    files = {}
    for name in storage.list(""):
        inner = [f"{name}/{path}" for path in storage.list(name)] if split_name(name) else [name]
        files |= {path: bytes(storage.open(path).read_at(0, storage.size_bytes(path))) for path in inner}
    known = {name: answers(log) for name, log in opened(stored(files)).items()}
    return Written(files, known, {name: [time for time in one.by_time if time >= 0] for name, one in known.items()})


def stored(files: Files) -> MemoryStorage:
    storage = MemoryStorage(int)
    for path, data in files.items():
        if "/" in path:
            storage.make_directory(path.split("/")[0])
        storage.open(path, create=True).append([data])
    return storage


def opened(storage: MemoryStorage, only: str = "") -> dict[str, PartitionLog]:
    directory = LogDirectory(storage)
    directory.start()
    return {
        f"{topic}-{number}": directory.open(topic, number, settings(), now_ms=START_MS)
        for topic, number in directory.found()
        if only in ("", f"{topic}-{number}")
    }


def flipped(seed: int) -> tuple[Written, str, str, Files]:
    """Return what was written, a file, how it was changed, and all files with that change."""
    chance = Random(seed)
    was = written(seed % 3)
    path = chance.choice([path for path, data in sorted(was.files.items()) if data])
    data = bytearray(was.files[path])
    at = chance.randrange(len(data))
    mask = 1 << chance.randrange(8) if chance.random() < 0.7 else chance.randrange(1, 256)
    data[at] ^= mask
    return (
        was,
        path,
        f"{path}, byte {at} of {len(data)}: {data[at] ^ mask:#04x} is {data[at]:#04x}",
        {**was.files, path: bytes(data)},
    )


def verified(files: Files) -> list[str]:
    return [str(problem) for problem in verify_directory(stored(files), VerifiedCounts())]


@pytest.mark.outside
@pytest.mark.parametrize("part", PARTS)
def test_after_a_clean_stop_a_flipped_byte_is_harmless_or_an_error_or_found_by_verify(part: int) -> None:
    for seed in range(part * 50, part * 50 + 50):
        was, path, change, files = flipped(seed)
        only = path.split("/")[0] if "/" in path else ""
        try:
            is_as_before = all(
                has_bounds(log, was.answers[name]) and answers(log, was.times[name]) == was.answers[name]
                for name, log in opened(stored(files), only).items()
            )
        except (ProtocolError, KafkaError, StorageError):
            continue
        assert is_as_before or path.endswith(NAMES_ONLY) or verified(files), f"seed {seed}: {change}"


def moves_last_batch(was: Files, now: Files, path: str) -> bool:
    """Whether the batch that ends a log claims to begin later than it does."""
    later = [name for name in was if name.startswith(path.split("/")[0]) and name.endswith(".log") and name > path]
    if not path.endswith(".log") or later:
        return False
    *_, last = batches(was[path])
    offset = int.from_bytes(now[path][last.position : last.position + 8], "big", signed=True)
    return offset > (last.base_offset if last.magic == 2 else last.last_offset)


def has_bounds(log: PartitionLog, due: Answers) -> bool:
    """Whether a log is as long as it was; one that is not may pretend to be so long that nobody can ask for it all."""
    return (log.log_start_offset, log.log_end_offset) == due.bounds[:2]


@pytest.mark.outside
@pytest.mark.parametrize("part", PARTS)
def test_after_an_unclean_stop_no_wrong_record_is_served(part: int) -> None:
    for seed in range(part * 50, part * 50 + 50):
        was, path, change, files = flipped(seed)
        only = path.split("/")[0] if "/" in path else ""
        files.pop(CLEAN_SHUTDOWN)
        files.pop("recovery-point-offset-checkpoint")
        what = f"seed {seed}: {change}"
        for name, log in opened(stored(files), only).items():
            due = was.answers[name]
            if moves_last_batch(was.files, files, path):
                # Neither a checksum nor a batch behind it tells where the last batch begins, and a gap may be.
                assert log.log_end_offset > due.bounds[1], what
                continue
            # Where the log begins is nowhere but in its checkpoint.
            if path == "log-start-offset-checkpoint" and not has_bounds(log, due):
                assert verified(files), what
                continue
            assert due.bounds[0] == log.log_start_offset <= log.log_end_offset <= due.bounds[1], what
            known = dict(due.epochs[: due.bounds[1] - due.bounds[0]])
            is_epoch_broken = any(
                batch.partition_leader_epoch != known.get(batch.last_offset)
                for batch in all_batches(log)
                if batch.magic == 2 and batch.last_offset >= due.bounds[0]
            )
            # No checksum covers a batch's leader epoch.
            assert not is_epoch_broken or verified(files), what
            if not is_epoch_broken:
                audit(log)
            now = answers(log, was.times[name])
            offsets = range(due.bounds[0], log.log_end_offset)
            assert now.records == {offset: due.records[offset] for offset in offsets}, what
            if log.log_end_offset == due.bounds[1]:
                assert now.aborted == due.aborted, what
            if not path.endswith(".log"):
                assert now == due, what

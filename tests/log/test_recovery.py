"""What a start believes of side files, and what a lookup does with numbers that cannot be."""

from __future__ import annotations

import pytest

from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.partition_log import PartitionLog
from minibroker.log.reading import read
from minibroker.log.records import Record
from minibroker.log.recovery import open_log
from minibroker.log.settings import LogSettings, ValidationSettings
from minibroker.simulation.disk import SimulatedStorage

EPOCHS = "t-0/leader-epoch-checkpoint"
INDEX = "t-0/00000000000000000000.index"


def filled(storage: SimulatedStorage, magic: int) -> PartitionLog:
    settings = LogSettings(index_interval_bytes=100, validation=ValidationSettings(message_format=magic))
    log = open_log(storage, "t-0", settings, was_clean=True)
    for _ in range(10):
        data = bytearray(build_batch(magic, [Record(b"k", b"v" * 50, (), 5)]))
        log.append_as_leader(data, leader_epoch=7, now_ms=5)
    log.close()
    return log


def text(storage: SimulatedStorage, path: str) -> bytes:
    return bytes(storage.open(path).map())


def test_a_log_that_knows_no_epochs_says_so_and_is_believed() -> None:
    storage = SimulatedStorage()
    filled(storage, 1)
    assert not storage.exists(EPOCHS)
    assert len(open_log(storage, "t-0", LogSettings(), was_clean=True).epochs) == 0
    assert text(storage, EPOCHS) == b"0\n0\n"
    steps = storage.steps
    assert len(open_log(storage, "t-0", LogSettings(), was_clean=True).epochs) == 0
    assert storage.steps <= steps + 1  # nothing is written again; to make a directory that is there is a step


@pytest.mark.parametrize("left", [None, b"", b"nonsense"])
def test_epochs_are_found_in_the_batches_if_their_file_is_gone_empty_or_broken(left: bytes | None) -> None:
    storage = SimulatedStorage()
    filled(storage, 2)
    storage.remove(EPOCHS)
    if left is not None:
        storage.open(EPOCHS, create=True).append([left])
    assert open_log(storage, "t-0", LogSettings(), was_clean=True).epochs.entries == [(7, 0)]
    assert text(storage, EPOCHS) == b"0\n1\n7 0\n"


def test_epochs_that_were_cut_before_a_crash_brought_back_the_start_are_found_again() -> None:
    storage = SimulatedStorage()
    filled(storage, 2).advance_log_start(4)
    assert text(storage, EPOCHS) == b"0\n1\n7 4\n"
    assert open_log(storage, "t-0", LogSettings(), log_start_offset=4).epochs.entries == [(7, 4)]
    assert open_log(storage, "t-0", LogSettings(), log_start_offset=0).epochs.entries == [(7, 0)]
    assert text(storage, EPOCHS) == b"0\n1\n7 0\n"


@pytest.mark.parametrize("byte", range(8))
@pytest.mark.parametrize("damaged", [0x80, 0x01, 0xFF])
def test_a_wrong_number_in_an_index_changes_no_answer(byte: int, damaged: int) -> None:
    storage = SimulatedStorage()
    filled(storage, 2)
    file = storage.open(INDEX)
    position = file.size_bytes - 8 + byte
    file.write_at(position, bytes([file.read_at(position, 1)[0] ^ damaged]))
    log = open_log(storage, "t-0", LogSettings(), was_clean=True)
    assert log.log_end_offset == 10
    for offset in range(10):
        found = read(log, offset, 1, limit_offset=10)
        assert found is not None
        assert [batch.base_offset for batch in batches(found.view())] == [offset]

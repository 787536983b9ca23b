"""Damage in the metadata log is refused, named and left as it was; what a crash tears is cut off."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minibroker.log.batches import batches
from minibroker.log.checkpoints import read_file
from minibroker.log.memory_storage import MemoryStorage
from minibroker.metadata.bootstrap import METADATA_DIRECTORY
from minibroker.metadata.damage import FLUSHED_END, DamagedMetadata, format_flushed_end, read_flushed_end
from minibroker.metadata.metadata_log import MetadataLog
from tests.metadata.nodes import NOW_MS, LoneNode

LOG = f"{METADATA_DIRECTORY}/{0:020}.log"


def written() -> tuple[MemoryStorage, bytes]:
    storage = MemoryStorage(int)
    node = LoneNode(storage)
    for name in ("orders", "payments", "returns"):
        node.create(name)
    node.log.release()
    return storage, read_file(storage, LOG)


def put(storage: MemoryStorage, path: str, data: bytes) -> None:
    file = storage.open(path, create=True)
    file.truncate(0)
    file.append([data])


def tree(storage: MemoryStorage) -> dict[str, bytes]:
    return {name: read_file(storage, f"{METADATA_DIRECTORY}/{name}") for name in storage.list(METADATA_DIRECTORY)}


def load(storage: MemoryStorage, *, was_clean: bool = False, repairs: bool = False) -> tuple[list[str], list[str]]:
    """Return the topics that are known, and what is said."""
    said: list[str] = []
    log = MetadataLog(storage, node_id=1)
    image = log.load(now_ms=NOW_MS, was_clean=was_clean, repairs=repairs, say=said.append)
    if repairs:
        log.lead(now_ms=NOW_MS)
        log.end_repair()
    log.release()
    return sorted(image.topics), said


def start_of(data: bytes, at: int) -> int:
    return max(batch.position for batch in batches(data) if batch.position <= at)


def end_of(data: bytes, at: int) -> int:
    return min(batch.end_position for batch in batches(data) if batch.end_position > at)


@pytest.mark.parametrize("was_clean", [True, False])
def test_every_flipped_byte_is_refused_or_harmless(was_clean: bool) -> None:
    storage, data = written()
    refused = 0
    for at in range(len(data)):
        put(storage, LOG, data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        before = tree(storage)
        try:
            assert load(storage, was_clean=was_clean)[0] == ["orders", "payments", "returns"], at
        except DamagedMetadata as damage:
            # Of an epoch that is too high the next batch tells.
            assert damage.path == LOG
            assert damage.position in (start_of(data, at), end_of(data, at))
            assert f"{LOG}, byte {damage.position}: " in str(damage)
            assert tree(storage) == before
            refused += 1
    assert refused > 0.95 * len(data)


@pytest.mark.parametrize("lost", [1, 3, 60])
@pytest.mark.parametrize("keeps_note", [True, False])
def test_what_is_missing_at_the_end_is_refused_if_it_had_been_on_the_disk(lost: int, keeps_note: bool) -> None:
    storage, data = written()
    put(storage, LOG, data[:-lost])
    if keeps_note:
        with pytest.raises(DamagedMetadata):
            load(storage)
    else:
        storage.remove(FLUSHED_END)  # as in a directory of Kafka's
        topics, said = load(storage)
        assert topics == ["orders", "payments"]
        assert len(said) == 1


@pytest.mark.parametrize("damage", [lambda data: data[:500] + b"\0" + data[501:], lambda data: data[:500] + data[600:]])
def test_without_a_note_good_batches_behind_a_bad_one_tell(damage: Callable[[bytes], bytes]) -> None:
    storage, data = written()
    storage.remove(FLUSHED_END)
    put(storage, LOG, damage(data))
    with pytest.raises(DamagedMetadata):
        load(storage)


@pytest.mark.parametrize("was_clean", [True, False])
def test_without_a_note_every_flipped_byte_of_a_clean_log_is_refused_or_harmless(was_clean: bool) -> None:
    """A directory of Kafka's has no note; what it left in order can only be damaged, its last batch too."""
    storage, data = written()
    storage.remove(FLUSHED_END)
    last = list(batches(data))[-1].position
    cut = 0
    for at in range(last, len(data)):
        put(storage, LOG, data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        before = tree(storage)
        try:
            topics, said = load(storage, was_clean=was_clean)
        except DamagedMetadata as damage:
            assert was_clean
            assert damage.path == LOG
            assert damage.position == last
            assert tree(storage) == before
            continue
        if topics == ["orders", "payments"]:
            assert not was_clean, at
            assert len(said) == 1, at
            cut += 1
        else:
            assert topics == ["orders", "payments", "returns"], at
    assert was_clean or cut > 0.9 * (len(data) - last)


def test_behind_what_the_note_says_a_crash_may_have_torn_one_batch_and_not_the_next() -> None:
    storage, data = written()
    torn, last = list(batches(data))[-2:]
    put(storage, FLUSHED_END, format_flushed_end(torn.base_offset))
    put(storage, LOG, data[: torn.position + 70] + b"\xff" + data[torn.position + 71 :])
    assert last.crc_is_valid()
    topics, said = load(storage)
    assert topics == ["orders"]
    assert len(said) == 1


@pytest.mark.parametrize("left", ["nothing", "an empty file"])
def test_a_log_that_is_gone_is_refused(left: str) -> None:
    storage, _ = written()
    storage.remove(LOG)
    if left == "an empty file":
        put(storage, LOG, b"")
    with pytest.raises(DamagedMetadata, match="was on the disk up to"):
        load(storage)


def test_a_broken_note_is_no_note() -> None:
    storage, _ = written()
    note = read_file(storage, FLUSHED_END)
    assert read_flushed_end(storage) == int(note[:20]) > 0
    for at in range(len(note)):
        put(storage, FLUSHED_END, note[:at] + bytes([note[at] ^ 1]) + note[at + 1 :])
        assert read_flushed_end(storage) == -1
    for broken in (b"", b"1", note + b"\n", format_flushed_end(7)[:-1]):
        put(storage, FLUSHED_END, broken)
        assert read_flushed_end(storage) == -1
    assert load(storage)[0] == ["orders", "payments", "returns"]


def test_a_repair_keeps_a_copy_and_goes_on_with_what_is_before_the_damage() -> None:
    storage, data = written()
    last = list(batches(data))[-1].position
    damaged = data[: last + 70] + b"\xff" + data[last + 71 :]
    put(storage, LOG, damaged)
    topics, said = load(storage, repairs=True)
    assert topics == ["orders", "payments"]
    assert f"is cut at byte {last}: " in said[0]
    assert "__cluster_metadata-0.1-damaged" in said[0]
    assert read_file(storage, f"__cluster_metadata-0.1-damaged/{0:020}.log") == damaged
    assert load(storage)[0] == ["orders", "payments"]

"""Snapshot files: what was known of producers at an offset, so that not the whole log must be read at start.

    <offset, 20 digits>.snapshot      the state before the record with this offset

Written when a segment begins and at a clean stop; of those of clean stops the next start keeps the newest. A snapshot
is derived data: one that is broken or missing makes the start slower, for an older one is taken and more of the log is
replayed.
"""

from __future__ import annotations

from minibroker.errors import ProtocolError
from minibroker.in_pieces import Pace, at_once
from minibroker.log.checkpoints import read_file
from minibroker.log.producers import ProducerStates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from minibroker.in_pieces import InPieces
    from minibroker.log.segment import Segment
    from minibroker.log.storage import Storage
    from minibroker.stored.producers import AbortedTxn

SUFFIX = ".snapshot"


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020}{SUFFIX}"


def write_snapshot(storage: Storage, directory: str, offset: int, producers: ProducerStates) -> None:
    """Keep the state before `offset`. Not flushed: a broken one is found by its checksum."""
    file = storage.open(snapshot_path(directory, offset), create=True)
    try:
        file.truncate(0)
        file.append([producers.snapshot_bytes()])
    finally:
        file.close()


def snapshot_offsets(storage: Storage, directory: str) -> list[int]:
    """Return the offsets of all snapshots, rising."""
    names = storage.list(directory)
    return sorted(int(name[:20]) for name in names if name.endswith(SUFFIX) and name[:20].isdigit() and len(name) == 29)


def forget_snapshots(
    storage: Storage, directory: str, *, above: int, segments: Iterable[Segment] | None = None
) -> None:
    """Remove the snapshots of offsets that are not there any more.

    segments: of the snapshots that clean stops left within them only the newest stays.
    """
    offsets = snapshot_offsets(storage, directory)
    kept = {offset for offset in offsets if offset <= above}
    if segments is not None and kept:
        kept &= {max(kept), *(segment.base_offset for segment in segments)}
    for offset in offsets:
        if offset not in kept:
            storage.remove(snapshot_path(directory, offset))


def loading_producers(
    producers: ProducerStates,
    storage: Storage,
    directory: str,
    segments: list[Segment],
    end_offset: int,
    *,
    from_offset: int | None = None,
    expire: tuple[int, int] | None = None,
    on_abort: Callable[[Segment, AbortedTxn], object] | None = None,
) -> InPieces[None]:
    """Make `producers` the state before `end_offset`: the newest snapshot that can be read, and the log behind it.

    expire: the time now, and after which time a producer of the snapshot is forgotten.
    on_abort: told of each transaction that ends aborted at `from_offset` or behind; no later snapshot is taken then.
    """
    newest = end_offset if from_offset is None else from_offset
    oldest = segments[0].base_offset if segments else 0
    start = _load_newest_snapshot(producers, storage, directory, oldest, newest)
    if expire is not None:
        producers.expire(*expire)
    pace = Pace()
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is not None and following.base_offset <= start:
            continue
        place = segment.find(start)
        for batch in segment.batches(place.position) if place else ():
            if pace.is_over(batch.size_bytes):
                yield pace.take_us()
            if batch.last_offset >= end_offset:
                return
            if batch.producer_id >= 0:
                aborted = producers.apply(batch)
                if aborted is not None and on_abort is not None and aborted.last_offset >= newest:
                    on_abort(segment, aborted)


load_producers = at_once(loading_producers)


def load_snapshot_file(producers: ProducerStates, storage: Storage, path: str) -> None:
    """Make `producers` the state in a snapshot file; a broken one raises a ProtocolError."""
    producers.load_snapshot(read_file(storage, path))


def _load_newest_snapshot(producers: ProducerStates, storage: Storage, directory: str, oldest: int, newest: int) -> int:
    """Load the newest snapshot that can be read; those that cannot go. Return its offset, 0 if there is none.

    From one before the oldest batch nothing can be told: the end of a transaction may have been deleted since.
    """
    for offset in reversed(snapshot_offsets(storage, directory)):
        if oldest <= offset <= newest:
            path = snapshot_path(directory, offset)
            try:
                load_snapshot_file(producers, storage, path)
            except ProtocolError:
                storage.remove(path)
            else:
                return offset
    producers.clear()
    return 0

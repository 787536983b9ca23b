"""Surgery on the segments of an open log: the oldest go, or cleaned ones take the place of some.

    drop_oldest          [ segment 0 ][ segment 1 ][ active>   ->   .deleted   .deleted   [ active>
    replace_segments     [ segment 0 ][ segment 1 ][ active>   ->   [ segment 0, cleaned ][ active>

What must hold: whenever the power goes, a start finds what was there before or what is there after, never a hole; what
is gone when these return does not come back. recovery.py finishes or drops what was half done, so the order of the
steps here is what it relies on.
Files that go are renamed first: who was about to read them still finds them until `purge`, after file.delete.delay.ms.
Not here: cutting off the end (partition_log.py); what goes and why (retention and cleaning).
"""

from __future__ import annotations

from minibroker.log.checkpoints import sync_file
from minibroker.log.segment import CLEANED, DELETED, KINDS, SWAP
from minibroker.log.snapshots import snapshot_offsets, snapshot_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from minibroker.log.partition_log import PartitionLog
    from minibroker.log.segment import Segment
    from minibroker.log.storage import Storage


def drop_oldest(log: PartitionLog, count: int) -> list[str]:
    """Let the log begin behind its `count` oldest segments, never the active one; return which files to purge."""
    log.check_online()
    assert count < len(log.segments), f"{log.directory}: the active segment cannot be dropped"
    dropped, start_offset = log.segments[:count], log.segments[count].base_offset
    if not dropped:
        return []
    with log.or_offline:
        if log.names_changed:
            # A start that found no segment at all would begin at offset 0 again.
            log.storage.sync_directory(log.directory)
        snapshots = _snapshots_before(log, start_offset)
        log.cuts += 1
        log.put_segments(0, count)
        # The oldest first: whatever of this gets through, what is left has no hole.
        paths = [path for segment in dropped for path in _put_away(segment)]
        paths += _put_away_snapshots(log, snapshots)
        log.storage.sync_directory(log.directory)
        log.recovery_point = max(log.recovery_point, start_offset)
    # The epochs come last: batches that came back would be in none.
    log.advance_log_start(start_offset)
    return paths


def _snapshots_before(log: PartitionLog, offset: int) -> list[int]:
    """Return the snapshots that nobody needs any longer, all before an offset.

    The one at the offset is synced: what producers wrote before is known from nothing else.
    Kafka: removes those of the segments that go, and keeps the one at the beginning of a cleaned segment. Should the
    later ones be lost, it takes a transaction for open whose marker has been cleaned away.
    """
    found = snapshot_offsets(log.storage, log.directory)
    if offset in found:
        sync_file(log.storage, snapshot_path(log.directory, offset))
    return [each for each in found if each < offset]


def replace_segments(log: PartitionLog, old: Sequence[Segment], new: Sequence[Segment]) -> list[str]:
    """Put cleaned segments in the place of `old`, which are neighbours; return which files to purge.

    The new ones were written with the suffix .cleaned, the first with the base offset of the first old one. An error
    before the first of them is renamed leaves the log as it was; after that it takes it offline.
    """
    log.check_online()
    start = log.segments.index(old[0])
    end = start + len(old)
    assert log.segments[start:end] == list(old), f"{log.directory}: not neighbours"
    assert end < len(log.segments), f"{log.directory}: the active segment is not sealed"
    assert old[0].base_offset == new[0].base_offset, f"{new[0].path} does not begin where {old[0].path} does"
    _remove_leftovers(log, new)
    modified_ms = old[-1].modified_ms
    for segment in new:
        segment.seal()
        segment.sync()
        log.storage.set_modified_ms(segment.path, modified_ms)
    with log.or_offline:
        # First of all: from a snapshot before them the cleaned ones do not tell how transactions ended any more.
        snapshots = _put_away_snapshots(log, _snapshots_before(log, log.segments[end].base_offset))
        # The last first: as long as a .cleaned is left before it, a .swap does not count.
        for segment in reversed(new):
            segment.rename(SWAP)
        log.storage.sync_directory(log.directory)
        # From here on a start finishes this.
        paths = [path for segment in old for path in _put_away(segment)]
        for segment in new:
            segment.rename("")
        log.storage.sync_directory(log.directory)
        log.put_segments(start, end, new)
    return paths + snapshots


def _remove_leftovers(log: PartitionLog, new: Sequence[Segment]) -> None:
    """Remove what a cleaning left that gave up: with a .cleaned before it, a start would drop a .swap of ours."""
    ours = {segment.path_of(kind) for segment in new for kind in KINDS}
    names = [f"{log.directory}/{name}" for name in log.storage.list(log.directory) if name.endswith(CLEANED)]
    for path in names:
        if path not in ours:
            log.storage.remove(path)


def _put_away(segment: Segment) -> list[str]:
    """Rename a segment's files; return how they are called now. Others that had their names may still be read."""
    suffix, count = DELETED, 1
    while segment.storage.exists(segment.path + suffix):
        count += 1
        suffix = f".{count}{DELETED}"
    segment.rename(suffix)
    return [path for path in map(segment.path_of, KINDS) if segment.storage.exists(path)]


def _put_away_snapshots(log: PartitionLog, offsets: list[int]) -> list[str]:
    renamed = []
    for offset in offsets:
        path = snapshot_path(log.directory, offset)
        log.storage.rename(path, path + DELETED)
        renamed.append(path + DELETED)
    return renamed


def purge(storage: Storage, paths: Iterable[str]) -> None:
    """Remove files that were put away; what a crash brings back of them the next start removes."""
    for path in paths:
        storage.remove(path)

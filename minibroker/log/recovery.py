"""Opening a log: what a start finds in a directory, put in order.

After a clean stop nothing is scanned. After a crash everything behind the recovery point is: the log is cut at the
first byte that is no good batch, and indexes, producers' state and epochs are made anew from what is left.

What must hold: everything flushed is kept; what is kept is a beginning of what was appended; doing it again, also
after a crash half way, gives the same. Derived files (indexes, snapshots, checkpoints) that are missing or broken are
made anew, never fatal.
"""

from __future__ import annotations

from minibroker.errors import InvalidValue, ProtocolError
from minibroker.log.batches import batches
from minibroker.log.checkpoints import LEADER_EPOCHS, TEMPORARY, path_in, read_leader_epochs, write_leader_epochs
from minibroker.log.epochs import LeaderEpochs
from minibroker.log.outcomes import Recovery, no_jitter
from minibroker.log.partition_log import PartitionLog
from minibroker.log.producers import ProducerStates
from minibroker.log.segment import OFFSET_DELTA_MAX, Segment
from minibroker.log.snapshots import forget_snapshots, load_producers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from minibroker.log.epochs import EpochEntry
    from minibroker.log.settings import LogSettings
    from minibroker.log.storage import Storage
    from minibroker.stored.producers import AbortedTxn

DELETED, CLEANED, SWAP = ".deleted", ".cleaned", ".swap"
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")


def open_log(
    storage: Storage,
    directory: str,
    settings: LogSettings,
    *,
    was_clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    contiguous: bool = False,
    now_ms: int = 0,
    jitter: Callable[[int], int] = no_jitter,
    is_settled: bool = False,
) -> PartitionLog:
    """Open the log in a directory, which need not be there yet.

    was_clean: the log was closed in order; nothing is scanned.
    is_settled: the same, and names and files are on the disk: as long as nobody writes, closing has nothing to do.
    recovery_point: everything below it was flushed.
    log_start_offset: records below it have been deleted, though their segments may still be there.
    contiguous: the log was never compacted, so that a gap behind the recovery point is a loss, and what follows it
        must go too. Without this a file system that loses the tail of one segment and keeps the next leaves a hole.
        Kafka: keeps batches behind a gap of offsets when it recovers.
    """
    storage.make_directory(directory)
    finish_swaps(storage, directory)
    segments = _find_segments(storage, directory, now_ms)
    recovery = Recovery()
    scanned = []
    if not was_clean:
        scanned = _recover(segments, recovery_point, settings.index_interval_bytes, contiguous, recovery)
    next_offset = segments[-1].next_offset() if segments else log_start_offset
    if next_offset < log_start_offset:
        # What is left ends before the log begins: nothing of it counts.
        _remove(segments, 0)
        scanned, next_offset = [], log_start_offset
    epochs = _load_epochs(storage, directory, segments, scanned)
    if not segments:
        segments.append(Segment(storage, directory, log_start_offset, now_ms))
        segments[0].create(settings.segment_index_bytes)
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    if epochs.truncate_from_end(next_offset) | epochs.truncate_from_start(log_start_offset):
        write_leader_epochs(storage, directory, epochs)
    forget_snapshots(storage, directory, above=next_offset)
    aborted: list[tuple[Segment, AbortedTxn]] = []
    producers = ProducerStates(directory)
    load_producers(
        producers,
        storage,
        directory,
        segments,
        next_offset,
        from_offset=scanned[0].base_offset if scanned else None,
        expire=(now_ms, settings.producer_id_expiration_ms),
        on_abort=lambda segment, entry: aborted.append((segment, entry)),
    )
    _restore_transaction_indexes(scanned, aborted)
    for segment in segments:
        segment.close()  # until somebody writes or reads: a thousand idle logs hold no files
    return PartitionLog(
        storage,
        directory,
        settings,
        segments,
        producers,
        epochs,
        log_start_offset=log_start_offset,
        next_offset=next_offset,
        recovery_point=next_offset if was_clean else min(recovery_point, next_offset),
        recovery=recovery,
        jitter=jitter,
        is_settled=is_settled,
    )


def finish_swaps(storage: Storage, directory: str) -> None:
    """Finish or drop what the cleaner was about when the process ended, and what waited to be deleted.

    A cleaned segment is written beside the old ones as .cleaned; once it is whole and on the disk it is renamed to
    .swap; from then on it counts, and the segments that it covers do not.
    """
    names = storage.list(directory)
    half_done = [name for name in names if name.endswith((DELETED, CLEANED, TEMPORARY))]
    # Where a segment has been split, .swap files behind a .cleaned one belong to a split that did not get far enough.
    unfinished = min((name[:20] for name in half_done if name.endswith(CLEANED)), default="~")
    swaps = [name for name in names if name.endswith(SWAP) and name[:20] < unfinished]
    half_done += [name for name in names if name.endswith(SWAP) and name[:20] >= unfinished]
    for name in half_done:
        storage.remove(f"{directory}/{name}")
    for name in swaps:
        if name.endswith(".log" + SWAP):
            _remove_covered(storage, directory, name)
    # The batches come last: as long as they are a .swap, a crash leads back here.
    for name in sorted(swaps, key=lambda name: name.endswith(".log" + SWAP)):
        storage.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
    if half_done or swaps:
        storage.sync_directory(directory)


def _remove_covered(storage: Storage, directory: str, swap: str) -> None:
    """Remove the segments that a cleaned one takes the place of."""
    base_offset = int(swap[:20])
    file = storage.open(f"{directory}/{swap}")
    try:
        last_offset = max((batch.last_offset for batch in batches(file.map())), default=base_offset)
    finally:
        file.close()
    for name in storage.list(directory):
        is_segment = name[:20].isdigit() and name[20:] in (".log", *INDEX_SUFFIXES)
        if is_segment and base_offset <= int(name[:20]) <= last_offset:
            storage.remove(f"{directory}/{name}")


def _find_segments(storage: Storage, directory: str, now_ms: int) -> list[Segment]:
    """Return the segments, rising; indexes without a log go, and what an index is missing is made anew."""
    names = set(storage.list(directory))
    segments = []
    for name in sorted(names):
        base, suffix = name[:20], name[20:]
        if not base.isdigit():
            continue
        if suffix in INDEX_SUFFIXES and base + ".log" not in names:
            storage.remove(f"{directory}/{name}")
        elif suffix == ".log":
            segments.append(Segment(storage, directory, int(base), now_ms))
            if segments[-1].size_bytes and not {base + ".index", base + ".timeindex"} <= names:
                segments[-1].rebuild_indexes()
    return segments


# After a crash


def _recover(
    segments: list[Segment], recovery_point: int, index_interval_bytes: int, contiguous: bool, recovery: Recovery
) -> list[Segment]:
    """Look at every batch behind the recovery point; cut at the first that is not good; make the indexes anew.

    Returns the segments that were looked at and are still there.
    """
    scanned: list[Segment] = []
    expected: int | None = None  # what the next offset must be, if that can be said
    for index, segment in enumerate(segments):
        if index + 1 < len(segments) and segments[index + 1].base_offset <= recovery_point:
            continue
        if contiguous and expected is not None and segment.base_offset != expected:
            recovery.reason = f"{segment.path} begins where {expected} would come next"
            recovery.cut_bytes += _remove(segments, index)
            break
        recovery.scanned_bytes += segment.size_bytes
        end, expected, reason = _good_end(segment, recovery_point if contiguous else None)
        if reason:
            recovery.reason = reason
            recovery.cut_bytes += _remove(segments, index + 1) + segment.size_bytes - end
            segment.cut(end)
        if segment.rebuild_indexes(index_interval_bytes, is_sealed=segment is not segments[-1]):
            segment.sync()  # what they say of batches below the recovery point must not be lost by the next crash
        scanned.append(segment)
        if reason:
            break
    return scanned


def _restore_transaction_indexes(scanned: list[Segment], aborted: list[tuple[Segment, AbortedTxn]]) -> None:
    for segment in scanned:
        if segment.transaction_index.replace([entry for holder, entry in aborted if holder is segment]):
            segment.sync()
            segment.storage.sync_directory(segment.directory)


def _good_end(segment: Segment, gaps_end: int | None) -> tuple[int, int, str]:
    """Return where the good batches of a segment end, which offset comes next, and why no more are good.

    gaps_end: from this offset on none may be missing; None: they may anywhere, as after compaction.
    """
    position, expected = 0, segment.base_offset
    try:
        for batch in batches(segment.view(0, segment.size_bytes), strict=True):
            batch.check_crc()
            # Before v2 no checksum covers the offset, and a wrapper names its last only: unpacking shows the first.
            first_offset = batch.base_offset if batch.magic == 2 else batch.last_offset
            if gaps_end is not None and batch.magic < 2:
                first_offset = next((record.offset for record in batch.records()), first_offset)
            too_far = batch.last_offset - segment.base_offset > OFFSET_DELTA_MAX
            if first_offset < expected or batch.last_offset < first_offset or too_far:
                raise InvalidValue(f"offset {first_offset} where {expected} comes next", position, "batch")
            if gaps_end is not None and gaps_end <= expected < first_offset:
                raise InvalidValue(f"offsets {expected} to {first_offset - 1} are missing", position, "batch")
            position, expected = batch.end_position, batch.next_offset
    except ProtocolError as error:
        return position, expected, f"{segment.path}, byte {position}: {error}"
    return position, expected, ""


def _remove(segments: list[Segment], start: int) -> int:
    """Remove the segments from an index on, the newest first; return how many bytes they had."""
    removed_bytes = 0
    while len(segments) > start:
        segment = segments.pop()
        removed_bytes += segment.size_bytes
        segment.remove()
        segment.storage.sync_directory(segment.directory)
    return removed_bytes


def _load_epochs(storage: Storage, directory: str, segments: list[Segment], scanned: list[Segment]) -> LeaderEpochs:
    """Read the checkpoint and add what the scanned batches know; without a checkpoint all batches are asked.

    One that says "none" is believed as well, or every start would read all of a log of v1. Kafka makes it without text.
    """
    before: list[EpochEntry] | None = None
    try:
        epochs = read_leader_epochs(storage, directory)
        if storage.size_bytes(path_in(directory, LEADER_EPOCHS)):
            before = epochs.entries
    except ProtocolError:
        epochs = LeaderEpochs()
    asked = segments if before is None else scanned
    for segment in asked:
        for batch in segment.batches():
            epoch, known = batch.partition_leader_epoch, epochs.epoch_for_offset(batch.base_offset)
            if epoch >= 0 and epoch != known:
                # A checkpoint that says otherwise than the batches has been damaged; from here on it is not believed.
                start = batch.base_offset
                epochs = LeaderEpochs(
                    (kept.epoch, kept.start_offset)
                    for kept in epochs.entries
                    if kept.epoch <= epoch and kept.start_offset < start
                )
                if epochs.latest_epoch != epoch:
                    epochs.assign(epoch, start)
    if epochs.entries != before and any(segment.size_bytes for segment in asked):
        write_leader_epochs(storage, directory, epochs)
    return epochs

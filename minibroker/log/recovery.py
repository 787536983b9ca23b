"""Recovery of a log: what a start finds in its directory, put in order.

After a clean stop nothing is scanned. After a crash everything behind the recovery point is: the log is cut at the
first byte that is no good batch, and indexes, producers' state and epochs are made anew from what is left.

What must hold: everything flushed is kept; what is kept is a beginning of what was appended; doing it again, also
after a crash half way, gives the same. Derived files (indexes, snapshots, checkpoints) that are missing or broken are
made anew, never fatal. It is in pieces, for others may be served meanwhile; who has begun it ends it or gives it up
before anybody else touches the directory.
"""

from __future__ import annotations

from minibroker.errors import InvalidValue, ProtocolError, StorageDamaged
from minibroker.in_pieces import Pace, at_once
from minibroker.log.checkpoints import LEADER_EPOCHS, TEMPORARY, path_in, read_leader_epochs, write_leader_epochs
from minibroker.log.epochs import LeaderEpochs
from minibroker.log.index import stored_entry
from minibroker.log.partition_log import PartitionLog, Recovery, no_jitter
from minibroker.log.producers import ProducerStates
from minibroker.log.segment import CLEANED, DELETED, KINDS, OFFSET_DELTA_MAX, OFFSET_MAX, ROLLED, SWAP, Segment
from minibroker.log.snapshots import forget_snapshots, loading_producers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from minibroker.in_pieces import InPieces
    from minibroker.log.epochs import EpochEntry
    from minibroker.log.settings import LogSettings
    from minibroker.log.storage import Storage
    from minibroker.stored.producers import AbortedTxn

INDEX_SUFFIXES = KINDS[1:]


def opening(
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
    refuses_loss: bool = False,
) -> InPieces[PartitionLog]:
    """Open the log in a directory, which need not be there yet.

    was_clean: the log was closed in order; nothing is scanned.
    is_settled: the same, and names and files are on the disk: as long as nobody writes, closing has nothing to do.
    recovery_point: everything below it was flushed.
    log_start_offset: records below it have been deleted, though their segments may still be there.
    contiguous: the log is never cleaned nor copied from one that was: there is no gap between two segments.
    refuses_loss: raise StorageDamaged, and take nothing away, if something below the recovery point is not there. Else
        what is behind it goes, too, and a log of which nothing is left begins with the recovery point.

    A file system may keep a later file and not the end of an earlier one. Where a segment began and what is before it
    was not flushed yet, a file says where the log ended (segment.py, ROLLED): if it ends before that now, what follows
    goes too. A gap alone says nothing; what was copied from a cleaned log has them.
    Kafka: keeps segments behind a lost tail when it recovers.

    Kafka: cuts off all from the first bad batch on, flushed or not.
    """
    storage.make_directory(directory)
    finish_swaps(storage, directory)
    names = storage.list(directory)
    if refuses_loss and recovery_point and not any(name.endswith(".log") for name in names):
        raise StorageDamaged(f"{directory}: there is no segment, and records up to {recovery_point} had been flushed")
    segments = yield from _find_segments(storage, directory, names, now_ms)
    rolls = _find_rolls(directory, names)
    recovery = Recovery()
    scanned = []
    if not was_clean:
        ends = {base: end for base, end, _ in rolls}
        if contiguous:
            ends |= {segment.base_offset: segment.base_offset for segment in segments}
        flushed = recovery_point if refuses_loss else 0
        scanned = yield from _recover(segments, recovery_point, settings.index_interval_bytes, ends, flushed, recovery)
    if not segments:
        log_start_offset = max(log_start_offset, recovery_point)
    next_offset = segments[-1].next_offset() if segments else log_start_offset
    if refuses_loss and next_offset < recovery_point:
        raise StorageDamaged(
            f"{directory}: it ends at {next_offset}, and records up to {recovery_point} had been flushed"
        )
    if next_offset < log_start_offset:
        # What is left ends before the log begins: nothing of it counts.
        _remove(segments, 0)
        scanned, next_offset = [], log_start_offset
    epochs = yield from _load_epochs(storage, directory, segments, scanned, log_start_offset)
    if not segments:
        segments.append(Segment(storage, directory, log_start_offset, now_ms))
        segments[0].create(settings.segment_index_bytes)
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    if epochs.truncate_from_end(next_offset) | epochs.truncate_from_start(log_start_offset):
        write_leader_epochs(storage, directory, epochs)
    forget_snapshots(storage, directory, above=next_offset, segments=segments)
    aborted: list[tuple[Segment, AbortedTxn]] = []
    producers = ProducerStates(directory)
    yield from loading_producers(
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
    unflushed = {segment.base_offset for segment in scanned}
    for base_offset, _, path in rolls:
        if base_offset not in unflushed:
            storage.remove(path)
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
        rolls=[(base_offset, path) for base_offset, _, path in rolls if base_offset in unflushed],
    )


open_log = at_once(opening)


def finish_swaps(storage: Storage, directory: str) -> None:
    """Finish or drop what the cleaner was about when the process ended, and what waited to be deleted.

    Cleaned segments are written beside the old ones as .cleaned; once they are whole and on the disk they are renamed
    to .swap, the last one first; when no .cleaned is left they count, and the segments that they cover do not. Where
    they end says how far that is: a source of which nothing was kept may stay if it was the last, to be cleaned again.
    """
    names = storage.list(directory)
    # As long as there is a .cleaned, the .swap files behind it belong to something that did not get far enough.
    unfinished = min((name[:20] for name in names if name.endswith(CLEANED)), default="~")
    swaps = [name for name in names if name.endswith(SWAP) and name[:20] < unfinished]
    half_done = [name for name in names if name.endswith(SWAP) and name[:20] >= unfinished]
    # They go first: without a .cleaned they would be taken for whole, should the power go in between.
    _remove_names(storage, directory, half_done)
    remains = [name for name in names if name.endswith((CLEANED, DELETED, TEMPORARY)) and not name.endswith(ROLLED)]
    _remove_names(storage, directory, remains)
    _remove_names(
        storage, directory, _covered(storage, directory, [name for name in swaps if name[20:] == ".log.swap"])
    )
    # The batches come first: nothing is covered by a .swap of an index, so none that was renamed is taken away again.
    for name in sorted(swaps, key=lambda name: name[20:] != ".log.swap"):
        storage.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
    if swaps:
        storage.sync_directory(directory)


def _remove_names(storage: Storage, directory: str, names: list[str]) -> None:
    """Remove files so that no crash brings them back once something else has been done."""
    for name in names:
        storage.remove(f"{directory}/{name}")
    if names:
        storage.sync_directory(directory)


def _covered(storage: Storage, directory: str, swaps: list[str]) -> list[str]:
    """Return the files of the segments that some cleaned ones together take the place of."""
    if not swaps:
        return []
    start = int(swaps[0][:20])
    end = start
    for name in swaps:
        segment = Segment(storage, directory, int(name[:20]), suffix=SWAP)
        end = max(end, segment.base_offset, *(batch.last_offset for batch in segment.batches()))
        segment.close()
    return [
        name
        for name in storage.list(directory)
        if name[20:] in KINDS and name[:20].isdigit() and start <= int(name[:20]) <= end
    ]


def _find_segments(storage: Storage, directory: str, found: list[str], now_ms: int) -> InPieces[list[Segment]]:
    """Return the segments, rising; indexes without a log go, and what an index is missing is made anew."""
    names = set(found)
    segments = []
    for name in found:
        base, suffix = name[:20], name[20:]
        if not base.isdigit():
            continue
        if suffix in INDEX_SUFFIXES and base + ".log" not in names:
            storage.remove(f"{directory}/{name}")
        elif suffix == ".log":
            if int(base) > OFFSET_MAX:
                raise StorageDamaged(f"{directory}/{name}: no offset is so large; who put this file here?")
            segments.append(Segment(storage, directory, int(base), now_ms))
            if segments[-1].size_bytes and not {base + ".index", base + ".timeindex"} <= names:
                yield from segments[-1].rebuilding_indexes()
    return segments


def _find_rolls(directory: str, names: list[str]) -> list[tuple[int, int, str]]:
    """Return which segments began while the end of the log before them was not flushed: base offset, end, file."""
    return [
        (int(name[:20]), int(name[21:41]), f"{directory}/{name}")
        for name in names
        if name.endswith(ROLLED) and name[:20].isdigit() and name[21:41].isdigit()
    ]


# After a crash


def _recover(
    segments: list[Segment],
    recovery_point: int,
    index_interval_bytes: int,
    ends: dict[int, int],
    flushed: int,
    recovery: Recovery,
) -> InPieces[list[Segment]]:
    """Look at every batch behind the recovery point; cut at the first that is not good; make the indexes anew.

    ends: where the log ended before the segments with these base offsets, if that can be said.
    flushed: below this offset nothing may be cut off; StorageDamaged says what would have to be.
    Returns the segments that were looked at and are still there.
    """
    scanned: list[Segment] = []
    expected: int | None = None  # what the next offset must be, if that can be said
    for index, segment in enumerate(segments):
        if index + 1 < len(segments) and segments[index + 1].base_offset <= recovery_point:
            continue
        ended_at = ends.get(segment.base_offset, -1) if segment.base_offset > recovery_point else -1
        if expected is not None and (segment.base_offset < expected or expected < ended_at):
            due = max(expected, ended_at)
            recovery.reason = f"{segment.path} comes where the log ends with {expected}, and it had gone on to {due}"
            recovery.cut_bytes += _remove(segments, index)
            break
        recovery.scanned_bytes += segment.size_bytes
        next_base = segments[index + 1].base_offset if index + 1 < len(segments) else None
        ends_at = None if next_base is None else ends.get(next_base, next_base)
        end, expected, reason = yield from _good_end(segment, ends_at)
        if reason:
            if expected < flushed:
                raise StorageDamaged(f"{reason}; records up to {flushed} had been flushed")
            recovery.reason = reason
            recovery.cut_bytes += _remove(segments, index + 1) + segment.size_bytes - end
            segment.cut(end)
        is_changed = yield from segment.rebuilding_indexes(index_interval_bytes, is_sealed=segment is not segments[-1])
        if is_changed:
            segment.sync()  # what they say of batches below the recovery point must not be lost by the next crash
        scanned.append(segment)
        if reason:
            break
    return scanned


def _restore_transaction_indexes(scanned: list[Segment], aborted: list[tuple[Segment, AbortedTxn]]) -> None:
    for segment in scanned:
        entries = b"".join(stored_entry(entry) for holder, entry in aborted if holder is segment)
        if segment.transaction_index.replace(entries):
            segment.sync()
            segment.storage.sync_directory(segment.directory)


def _good_end(segment: Segment, end_offset: int | None) -> InPieces[tuple[int, int, str]]:
    """Return where the good batches of a segment end, which offset comes next, and why no more are good.

    end_offset: where the next segment begins; no batch goes beyond that.
    No checksum covers the first offset of a batch. So where two do not fit together and the earlier one lies behind a
    gap, it is that which is wrong: what comes after it would follow without a gap, or with a smaller one.
    """
    position, expected = 0, segment.base_offset
    behind_gap: tuple[int, int] | None = None  # the batch before lies there: its position, and what was due instead
    pace = Pace()
    try:
        for start, batch in segment.placed_batches(strict=True):
            if pace.is_over(batch.size_bytes):
                yield pace.take_us()
            position = start
            batch.check_crc()
            # Before v2 a wrapper names its last offset only.
            first_offset = batch.base_offset if batch.magic == 2 else batch.last_offset
            too_far = batch.last_offset - segment.base_offset > OFFSET_DELTA_MAX
            if first_offset < expected or batch.last_offset < first_offset or too_far:
                reason = f"offset {first_offset} where {expected} comes next"
                if first_offset < expected and behind_gap is not None:
                    position, expected = behind_gap
                    reason = f"the batch ends behind offset {first_offset}, with which the next one begins"
                raise InvalidValue(reason, position, "batch")
            behind_gap = (position, expected) if first_offset > expected else None
            position, expected = start + batch.size_bytes, batch.next_offset
        if end_offset is not None and expected > end_offset and behind_gap is not None:
            position, expected = behind_gap
            raise InvalidValue(f"the batch ends behind {end_offset}, where the next segment begins", position, "batch")
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


def _knows_start(epochs: LeaderEpochs, segments: list[Segment], start_offset: int) -> bool:
    """Return whether the epoch is known of the first batch that can be read, if it has one."""
    try:
        for segment in segments:
            place = segment.find(start_offset)
            if place is not None:
                epoch = segment.batch_at(place).partition_leader_epoch
                return epoch < 0 or epochs.epoch_for_offset(max(place.base_offset, start_offset)) is not None
    except ProtocolError:
        pass  # whoever reads there is told
    return True


def _load_epochs(
    storage: Storage, directory: str, segments: list[Segment], scanned: list[Segment], log_start_offset: int
) -> InPieces[LeaderEpochs]:
    """Read the checkpoint and add what the scanned batches know; without a checkpoint all batches are asked.

    So they are after a crash that brought back the beginning of the log, when the checkpoint was cut already.
    One that says "none" is believed as well, or every start would read all of a log of v1. Kafka makes it without text.
    """
    before: list[EpochEntry] | None = None
    try:
        epochs = read_leader_epochs(storage, directory)
        if storage.size_bytes(path_in(directory, LEADER_EPOCHS)):
            before = epochs.entries
    except ProtocolError:
        epochs = LeaderEpochs()
    if scanned and not _knows_start(epochs, segments, log_start_offset):
        before = None
    asked = segments if before is None else scanned
    pace = Pace()
    for segment in asked:
        for batch in segment.batches():
            if pace.is_over(batch.size_bytes):
                yield pace.take_us()
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

"""Indexes, aborted transactions and producer state in the text of kafka-dump-log.

An entry of an index is compared with the log it belongs to: the batch at its position must end with its offset, the
batch with its offset must have its timestamp. What disagrees is kept and reported when all files have been printed.
Active indexes are as long as they may become, with zeros behind the last entry: an entry at the base offset that is
not the first ends the list. One that has only such zeros has no entry.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from os.path import abspath

from minibroker.errors import InvalidLength, InvalidValue, ProtocolError, Truncated
from minibroker.log.batches import SEQUENCE_MAX, Batch, crc32c
from minibroker.log.index import NO_TIMESTAMP, OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY
from minibroker.stored.producers import AbortedTxn, ProducerSnapshot
from minibroker.tools.dump.batches import NEWEST, OLDEST, base_offset_of, file_batches, optional


class IndexFiles:
    """The indexes of one run, and what is wrong with them."""

    def __init__(self, release: str, verify_only: bool, sanity_only: bool, message_bytes_max: int):
        self.release = release
        self.verify_only = verify_only
        self.sanity_only = sanity_only
        self.message_bytes_max = message_bytes_max
        # By file: what the index says, and what the log does.
        self.mismatches: dict[str, list[tuple[int, int]]] = {}
        self.wrong_times: dict[str, list[tuple[int, int]]] = {}
        self.unordered_times: dict[str, list[tuple[int, int]]] = {}
        self.absent_offsets: dict[str, list[tuple[int, int]]] = {}

    @property
    def is_broken(self) -> bool:
        return any((self.mismatches, self.wrong_times, self.unordered_times, self.absent_offsets))

    def offset_index(self, path: str, index: memoryview, log: memoryview) -> Iterator[str]:
        """Yield the entries of an .index file."""
        base_offset, count = base_offset_of(path), len(index) // OFFSET_ENTRY.size
        if not count or (not self.sanity_only and _is_unused(index, OFFSET_ENTRY.size)):
            yield f"{path} is empty."
        elif self.sanity_only:
            if len(index) % OFFSET_ENTRY.size:
                raise _not_whole("Index file", path, len(index), OFFSET_ENTRY.size)
            if OFFSET_ENTRY.unpack_from(index, (count - 1) * OFFSET_ENTRY.size)[0] < 0:
                reason = f"Corrupt index found, index file ({abspath(path)}) has non-zero size but the last offset is"
                last = base_offset + OFFSET_ENTRY.unpack_from(index, (count - 1) * OFFSET_ENTRY.size)[0]
                raise InvalidValue(f"{reason} {last} which is less than the base offset {base_offset}", 0, "index")
            yield f"{path} passed sanity check."
        else:
            for number in range(count):
                relative, position = OFFSET_ENTRY.unpack_from(index, number * OFFSET_ENTRY.size)
                if relative == 0 and number:
                    return
                offset = base_offset + relative
                if position < 0 or position > len(log):
                    raise InvalidValue(f"{path}: entry {number} points at byte {position} of {len(log)}", position)
                batch = next(file_batches(log[position : position + self.message_bytes_max], path), None)
                if batch is None:
                    raise Truncated(f"{path}: entry {number} points at byte {position}, where no batch is", position)
                if batch.last_offset != offset:
                    self.mismatches.setdefault(path, []).append((offset, batch.last_offset))
                if not self.verify_only:
                    yield f"offset: {offset} position: {position}"

    def time_index(self, path: str, times: memoryview, index: memoryview, log: memoryview) -> Iterator[str]:
        """Yield the entries of a .timeindex file."""
        base_offset, count = base_offset_of(path), len(times) // TIME_ENTRY.size
        if self.sanity_only:
            _check_times(path, times, count, base_offset)
            yield f"{path} passed sanity check."
            return
        if _is_unused(times, TIME_ENTRY.size):
            return
        before = NO_TIMESTAMP
        for number in range(count):
            timestamp, relative = TIME_ENTRY.unpack_from(times, number * TIME_ENTRY.size)
            if relative == 0 and number:
                return
            offset = base_offset + relative
            batch = _batch_with(log[_position_before(index, relative) :], offset, path)
            if batch is None or batch.last_offset != offset:
                found = -1 if batch is None else batch.last_offset
                self.absent_offsets.setdefault(path, []).append((offset, found))
            else:
                largest = max((record.timestamp for record in batch.records()), default=NO_TIMESTAMP)
                if largest != timestamp:
                    self.wrong_times.setdefault(path, []).append((timestamp, largest))
                if before >= timestamp:
                    self.unordered_times.setdefault(path, []).append((timestamp, before))
            if not self.verify_only:
                yield f"timestamp: {timestamp} offset: {offset}"
            before = timestamp

    def complaints(self) -> Iterator[str]:
        """Yield what the tool says at the end about the indexes."""
        for path, pairs in self.mismatches.items():
            yield f"Mismatches in :{abspath(path)}"
            for offset, found in reversed(pairs):
                yield f"  Index offset: {offset}, log offset: {found}"
        for path, pairs in self.wrong_times.items():
            yield f"Found timestamp mismatch in :{abspath(path)}"
            for timestamp, found in pairs:
                yield f"  Index timestamp: {timestamp}, log timestamp: {found}"
        for path, pairs in self.unordered_times.items():
            yield f"Found out of order timestamp in :{abspath(path)}"
            for timestamp, before in pairs:
                yield f"  Index timestamp: {timestamp}, Previously indexed timestamp: {before}"
        for path, pairs in self.absent_offsets.items():
            where = f"in :{abspath(path)}" if self.release == NEWEST else "in the log."
            yield f"The following indexed offsets are not found {where}"
            for offset, found in pairs:
                yield f"Indexed offset: {offset}, found log offset: {found}"


def _is_unused(index: memoryview, entry_bytes: int) -> bool:
    """Return whether an index is of an active segment and has nothing but room: entries rise, so two cannot be 0.

    Kafka: takes the first for an entry, finds it wrong, and ends where the log has no batch yet.
    """
    return len(index) >= 2 * entry_bytes and not any(index[: 2 * entry_bytes])


def _check_times(path: str, times: memoryview, count: int, base_offset: int) -> None:
    """Raise what a broker would find wrong with the index when it starts."""
    start = f"Corrupt time index found, time index file ({abspath(path)}) has non-zero size but the last"
    if count:
        timestamp, relative = TIME_ENTRY.unpack_from(times, (count - 1) * TIME_ENTRY.size)
        first = TIME_ENTRY.unpack_from(times, 0)[0]
        if timestamp < first:
            reason = f"{start} timestamp is {timestamp} which is less than the first timestamp {first}"
            raise InvalidValue(reason, (count - 1) * TIME_ENTRY.size, "timeindex")
        if relative < 0:
            reason = f"{start} offset is {base_offset + relative} which is less than the first offset {base_offset}"
            raise InvalidValue(reason, (count - 1) * TIME_ENTRY.size + 8, "timeindex")
    if len(times) % TIME_ENTRY.size:
        raise _not_whole("Time index file", path, len(times), TIME_ENTRY.size)


def _not_whole(what: str, path: str, size_bytes: int, entry_bytes: int) -> InvalidLength:
    reason = f"{what} {abspath(path)} is corrupt, found {size_bytes} bytes which is neither positive nor a multiple of"
    return InvalidLength(f"{reason} {entry_bytes}", size_bytes, "index")


def _position_before(index: memoryview, relative: int) -> int:
    """Return where the log is to be searched for an offset: the position of the last entry at or below it."""
    count = len(index) // OFFSET_ENTRY.size
    used = bisect_right(range(1, count), False, key=lambda at: not any(index[at * 8 : at * 8 + 8])) + 1 if count else 0
    at = bisect_right(range(used), relative, key=lambda at: OFFSET_ENTRY.unpack_from(index, at * OFFSET_ENTRY.size)[0])
    position: int = OFFSET_ENTRY.unpack_from(index, (at - 1) * OFFSET_ENTRY.size)[1] if at else 0
    return max(0, position)


def _batch_with(log: memoryview, offset: int, path: str) -> Batch | None:
    """Return the first batch that ends at or behind an offset."""
    return next((batch for batch in file_batches(log, path) if batch.last_offset >= offset), None)


def transaction_lines(path: str, data: memoryview) -> Iterator[str]:
    """Yield the entries of a .txnindex file."""
    for start in range(0, len(data) - TXN_ENTRY.size + 1, TXN_ENTRY.size):
        version = int.from_bytes(data[start : start + 2], "big", signed=True)
        if version > 0:
            reason = (
                f"Unexpected aborted transaction version {version} in transaction index {path}, current version is 0"
            )
            raise InvalidValue(reason, start, "AbortedTxn.version")
        entry = AbortedTxn.decode(bytes(data[start + 2 : start + TXN_ENTRY.size]), 0)
        yield (
            f"version: {version} producerId: {entry.producer_id} firstOffset: {entry.first_offset}"
            f" lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        )


def snapshot_lines(data: memoryview, release: str, faults: list[str]) -> Iterator[str]:
    """Yield the producers of a .snapshot file; what makes it unreadable goes to `faults`."""
    content = bytes(data)
    version = int.from_bytes(content[:2], "big", signed=True)
    if len(content) >= 2 and version != 1:
        reason = f"Snapshot contained an unknown file version {version}"
        faults.append(f"Snapshot failed schema validation: {reason}" if release == NEWEST else reason)
        return
    try:
        snapshot, _ = ProducerSnapshot.decode_from(content, 2, 1)
    except ProtocolError as error:
        # Kafka: ends with "null" in 4.x, with the path of the field in older releases; here it is our error.
        faults.append(f"Snapshot failed schema validation: {error}")
        return
    if (computed := crc32c(content[6:])) != snapshot.crc:
        stored = f"Stored crc: {snapshot.crc}. Computed crc: {computed}"
        faults.append(f"Snapshot is corrupt (CRC is no longer valid). {stored}")
        return
    for entry in snapshot.producer_entries:
        first = entry.current_txn_first_offset
        words = [
            f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} coordinatorEpoch: {entry.coordinator_epoch}",
            f"currentTxnFirstOffset: {optional(None if first < 0 else first)}",
        ]
        if release != OLDEST:
            words.append(f"lastTimestamp: {entry.timestamp}")
        if entry.last_offset >= 0:
            sequence = entry.last_sequence - entry.offset_delta & SEQUENCE_MAX
            words.append(f"firstSequence: {sequence} lastSequence: {entry.last_sequence}")
            words.append(f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta}")
            words.append(f"timestamp: {entry.timestamp}")
        elif release != NEWEST:
            words.append("")  # the older tools leave a space at the end
        yield " ".join(words)

"""One batch in, and out what compaction keeps of it: all of it, some of its records, an empty batch, or nothing.

A record stays if it has the last offset of its key, or lies behind what the offset map covers; a tombstone, as long as
its time is not over. Records without key go, and aborted data. Then, of the batch:

    nothing dropped, nothing to note          its own bytes, not copied
    some records left                         a batch with those and the rest of the header as it was
    tombstones, or a marker of nothing        the same with a delete horizon, the first time that it is kept (KIP-534)
    no record left                            nothing, unless it is a producer's last batch or the last of the range:
                                              then 61 bytes, so that sequence numbers and the end are not lost

What must hold: offsets, the batch's first and last offset, sequence numbers and leader epoch never change; bytes of
records are copied and never written anew, but for their timestamp where the batch's base timestamp moves.
`upgrades`: v0 and v1 become v2, as in Kafka 4.x; without it they stay what they are, as before.
Kafka: fails where the last batch of the range has format v0 or v1 and nothing of it is left; here it becomes an empty
batch of v2, or goes if formats stay.
Not here: reading keys (keys.py), writing v2 batches (kept_records.py), what was aborted (transactions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import compress
from operator import not_
from typing import Any

from minibroker.cleaner.kept_records import rebuilt
from minibroker.cleaner.keys import (
    CHUNK_RECORDS,
    CHUNK_US,
    NO_KEY,
    Chunk,
    Unusual,
    chunks,
    map_key,
    stored_records,
    unpacked_records,
)
from minibroker.cleaner.offset_map import OffsetMap
from minibroker.cleaner.survivors import STAYS, TOMBSTONE
from minibroker.cleaner.transactions import Transactions
from minibroker.errors import EncodeError, InvalidRecord
from minibroker.log.batches import Batch
from minibroker.log.build import build_batch, origin_of
from minibroker.log.formats import APPEND_TIME, CREATE_TIME
from minibroker.log.producers import ProducerStates
from minibroker.log.record_walks import make_walk
from minibroker.log.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.in_pieces import InPieces


LastBatch = tuple[int, int]  # offset of a producer's last record, -1 if there is only a marker; its epoch
NO_OFFSET = -1
_STAYS = bytes(mark & STAYS for mark in range(256))  # of each mark
_STAYS_IF_OVER = bytes(mark == STAYS for mark in range(256))  # when the time of tombstones is over


def last_batches(states: ProducerStates) -> dict[int, LastBatch]:
    """Return by producer id what must stay for its next batch to be judged as before."""
    return {
        producer_id: (producer.batches[-1].last_offset if producer.batches else NO_OFFSET, producer.epoch)
        for producer_id, producer in states.producers.items()
    }


class Filtered:
    """What is left of a batch."""

    __slots__ = ("data", "records_kept", "records_read")

    def __init__(self, data: bytes | memoryview | None, records_read: int, records_kept: int):
        self.data = data  # None: nothing; a view: the batch as it was
        self.records_read = records_read
        self.records_kept = records_kept


class BatchFilter:
    """What one pass over a log keeps, batch after batch in the order of the log."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: Transactions,
        *,
        now_ms: int,
        delete_retention_ms: int,
        producers: Mapping[int, LastBatch] | None = None,
        uncleanable_offset: int = NO_OFFSET,
        upgrades: bool = True,
    ):
        self._offsets = offsets
        self._transactions = transactions
        self._now_ms = now_ms
        self._new_horizon = now_ms + delete_retention_ms
        self.producers = producers or {}  # whoever is known when a segment is begun
        self._uncleanable_offset = uncleanable_offset  # the batch that ends there stays, maybe empty
        self._upgrades = upgrades
        self.keeps_old_tombstones = True  # of v0 and v1, which have no horizon: by the age of their segment

    def filter(self, batch: Batch) -> InPieces[Filtered]:
        """Return what is left of the next batch; yield after every 128 records."""
        may_go = self._transactions.see(batch)
        horizon = batch.delete_horizon
        is_over = horizon is not None and horizon <= self._now_ms
        keeps_empty = batch.next_offset == self._uncleanable_offset or self._is_last_of_producer(batch)
        if may_go and (is_over or not batch.is_control):
            return Filtered(_emptied(batch) if keeps_empty else None, batch.count, 0)
        if batch.magic == 2 and not batch.is_control:
            marks = self._offsets.survivors.find_marks(batch)
            try:
                if marks is not None:
                    return (yield from self._filter_marked(batch, marks, is_over, keeps_empty))
                return (yield from self._filter_keys(batch, is_over, keeps_empty))
            except Unusual:
                pass
        return (yield from self._filter_records(batch, is_over, keeps_empty, marks_nothing=may_go))

    def _is_last_of_producer(self, batch: Batch) -> bool:
        """Return whether the batch tells the producer's last sequence number, or if no data does, its epoch."""
        if batch.producer_id < 0 or batch.producer_id not in self.producers:
            return False
        last_offset, epoch = self.producers[batch.producer_id]
        if last_offset != NO_OFFSET:
            return batch.last_offset == last_offset
        return batch.is_control and batch.producer_epoch == epoch

    def _filter_marked(self, batch: Batch, marks: bytes, is_over: bool, keeps_empty: bool) -> InPieces[Filtered]:
        """Filter data of which it has been noted what stays."""
        tombstones_count = 0 if is_over else marks.count(STAYS | TOMBSTONE)
        count, kept_count = batch.count, marks.count(STAYS) + tombstones_count
        horizon = self._horizon(batch, tombstones_count > 0)
        done = _without_building(batch, kept_count, horizon, keeps_empty)
        if done is not None:
            return done
        data = (yield from unpacked_records(batch)) if batch.codec else stored_records(batch)
        kept = yield from _places(data, marks.translate(_STAYS_IF_OVER if is_over else _STAYS))
        built = yield from rebuilt(batch, data, kept, horizon)
        return Filtered(built, count, kept_count)

    def _filter_keys(self, batch: Batch, is_over: bool, keeps_empty: bool) -> InPieces[Filtered]:
        """Filter data of format v2."""
        data = (yield from unpacked_records(batch)) if batch.codec else stored_records(batch)
        kept: list[int] = []  # where records that stay begin
        has_tombstones = False
        for chunk in chunks(batch, data):
            goes = self._goes(chunk, is_over)
            if chunk.tombstones and not all(goes[place] for place in chunk.tombstones):
                has_tombstones = True
            kept += compress((chunk.start, *chunk.ends), map(not_, goes))
            yield CHUNK_US
        count, kept_count = batch.count, len(kept)
        horizon = self._horizon(batch, has_tombstones)
        done = _without_building(batch, kept_count, horizon, keeps_empty)
        if done is not None:
            return done
        built = yield from rebuilt(batch, data, kept, horizon)
        return Filtered(built, count, kept_count)

    def _horizon(self, batch: Batch, has_tombstones: bool) -> int | None:
        """Return until when the tombstones that stay in a batch must stay; a batch has one from its first pass on."""
        return self._new_horizon if batch.delete_horizon is None and has_tombstones else batch.delete_horizon

    def _goes(self, chunk: Chunk, is_over: bool) -> list[bool]:
        """Return of each record whether it is dropped."""
        goes = self._offsets.superseded(chunk.keys, chunk.offsets)
        end_offset, offsets = self._offsets.end_offset, chunk.offsets
        if chunk.has_keyless:
            for place, key in enumerate(chunk.keys):
                if key == NO_KEY:
                    goes[place] = offsets[place] < end_offset
        if is_over:
            for place in chunk.tombstones:
                if offsets[place] < end_offset:
                    goes[place] = True
        return goes

    def _filter_records(
        self, batch: Batch, is_over: bool, keeps_empty: bool, *, marks_nothing: bool
    ) -> InPieces[Filtered]:
        """Filter what is rare: formats v0 and v1, markers, and records that nobody writes in such a way."""
        keeps_tombstones = not is_over if batch.magic == 2 else self.keeps_old_tombstones
        kept: list[Record] = []
        count = 0
        for record in batch.records():
            count += 1
            if batch.is_control or self._stays(record, keeps_tombstones):
                kept.append(record)
            if count % CHUNK_RECORDS == 0:
                yield CHUNK_US
        if not kept:
            return Filtered(_emptied(batch) if keeps_empty and self._can_be_empty(batch) else None, count, 0)
        magic = 2 if self._upgrades else batch.magic
        has_tombstones = marks_nothing or any(record.value is None for record in kept)
        horizon = None if magic < 2 else self._horizon(batch, has_tombstones)
        if len(kept) == count and magic == batch.magic and horizon == batch.delete_horizon:
            return Filtered(batch.view, count, count)
        return Filtered(_built(batch, kept, magic, horizon), count, len(kept))

    def _stays(self, record: Record, keeps_tombstones: bool) -> bool:
        if record.offset >= self._offsets.end_offset:
            return True
        if record.key is None or self._offsets.superseded([map_key(record.key)], [record.offset])[0]:
            return False
        return record.value is not None or keeps_tombstones

    def _can_be_empty(self, batch: Batch) -> bool:
        return batch.magic == 2 or self._upgrades


def _places(data: bytes, stays: bytes) -> InPieces[list[int]]:
    """Return where the records begin that stay."""
    kept: list[int] = []
    walk = _find_ends or _make_walk()
    position, end = 0, len(stays)
    try:
        for first in range(0, end, CHUNK_RECORDS):
            if first:
                yield CHUNK_US
            starts = [position]
            position = walk(data, position, first, min(first + CHUNK_RECORDS, end), 0, starts)
            kept += compress(starts, stays[first : first + CHUNK_RECORDS])
    except InvalidRecord:
        raise Unusual from None
    return kept


def _make_walk() -> Callable[..., int]:
    global _find_ends
    _find_ends = make_walk("size", trusting=True, parameters="starts", before="add = starts.append", each="add(stop)")
    return _find_ends


_find_ends: Callable[..., int] | None = None


def _without_building(batch: Batch, kept_count: int, horizon: int | None, keeps_empty: bool) -> Filtered | None:
    """Return what becomes of a batch of which nothing stays, or everything as it is; None: it is to be built anew."""
    if not kept_count:
        return Filtered(_emptied(batch) if keeps_empty else None, batch.count, 0)
    if kept_count == batch.count and horizon == batch.delete_horizon:
        return Filtered(batch.view, kept_count, kept_count)
    return None


def _emptied(batch: Batch) -> bytes:
    """Return a batch without records, codec and delete horizon in the place of this one."""
    return _built(batch, [], 2, None)


def _built(batch: Batch, records: list[Record], magic: int, horizon: int | None) -> bytes:
    """Return a batch with these records and the rest of the header as it was."""
    is_stamped = batch.timestamp_type == APPEND_TIME
    settings: dict[str, Any] = {
        "codec": batch.codec if records else 0,
        "timestamp_type": APPEND_TIME if is_stamped else CREATE_TIME,
        "max_timestamp": batch.max_timestamp if is_stamped or not records else None,
        "delete_horizon": horizon,
    }
    if batch.magic == 2 or not records:
        magic = 2
        settings |= {"base_offset": batch.base_offset, "last_offset": batch.last_offset, **origin_of(batch)}
    try:
        return build_batch(magic, records, **settings)
    except EncodeError as error:
        # Numbers that can be read but not be written: offsets that fall, times beyond 64 bits.
        raise InvalidRecord(f"cannot be written anew: {error}", batch.position, "batch") from None

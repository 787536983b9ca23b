"""What can still be read behind damage in a metadata log that is repaired.

    <good batches> <damage> <good batches> <damage> ... <end>
     the image      a gap    rescued, in the order of the file

What must hold: a record that is rescued says of the state what it said before the damage: it is whole (its batch's
checksum says so), it was committed, and all that it refers to is there. What only the gap knew stays unknown, and
`is_complete` is False then: nothing may be deleted because of settings that may have been others.
Checksums do not cover the offset of a batch, so the order of the file counts, and offsets only tell how large a gap is.
Brokers and controllers are not rescued: they register themselves when they start.
"""

from __future__ import annotations

from minibroker.errors import InvalidRecord
from minibroker.log.checkpoints import read_file
from minibroker.metadata.damage import good_batches
from minibroker.metadata.image import TOPIC, MetadataImage
from minibroker.metadata.records import UnknownRecord, read_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from minibroker.log.batches import Batch
    from minibroker.log.storage import Storage
    from minibroker.metadata.damage import Repair
    from minibroker.stored.kinds import MetadataRecord

TOPIC_RECORD, REMOVE_TOPIC = 2, 9  # numbers of kinds
BEGIN, END, ABORT = 23, 24, 25  # of a transaction
ABOUT_PROCESSES = {0, 1, 7, 8, 17, 20, 21, 27, 29}  # who is there, and what says nothing


class Rescue:
    """The records behind the damage that count, and whether anything is missing."""

    def __init__(self, storage: Storage, repair: Repair):
        self.is_complete = True
        self.removed_ids: set[bytes] = set()  # topics that were deleted behind the damage
        self._storage = storage
        self._repair = repair
        self._next_offset = repair.offset  # behind what is known

    def records(self, image: MetadataImage, snapshot_end: int) -> list[MetadataRecord]:
        """Return what is to be written behind an image, which begins with a snapshot if its end is above 0."""
        is_ahead = snapshot_end > self._repair.offset  # it knows more than what was left of the log
        self._next_offset = max(self._next_offset, snapshot_end)
        trial = MetadataImage()
        for known in image.records():
            trial.apply(known)
        return [each for record in self._committed(is_ahead) for each in self._applied(trial, record)]

    def _applied(self, trial: MetadataImage, record: MetadataRecord) -> list[MetadataRecord]:
        """Return a record, and what has to come before it, if it means something to an image."""
        before: list[MetadataRecord] = []
        if record.type_number == REMOVE_TOPIC:
            self.removed_ids.add(bytes(record.topic_id))  # type: ignore[attr-defined]
        elif record.type_number == TOPIC_RECORD:
            before = forgotten(trial, record.name)  # type: ignore[attr-defined]
        try:
            for each in (*before, record):
                trial.apply(each)
        except (InvalidRecord, LookupError):
            return []  # of a topic or partition that the gap has made
        return [*before, record]

    def _committed(self, is_ahead: bool) -> Iterator[MetadataRecord]:
        """Yield the records that took effect, without those that only say so."""
        waiting: list[MetadataRecord] = []
        is_open: bool | None = None  # a transaction; None: unless one began in the gap
        for batch, is_behind_gap in self._batches(is_ahead):
            if is_behind_gap:
                yield from waiting if is_open is None else ()
                waiting, is_open = [], None
            for record in self._records(batch):
                if record.type_number in (BEGIN, END, ABORT):
                    took_effect = record.type_number == END or (record.type_number == BEGIN and not is_open)
                    yield from waiting if took_effect else ()
                    waiting, is_open = [], record.type_number == BEGIN
                elif is_open is False:
                    yield record
                else:
                    waiting.append(record)
        yield from waiting if is_open is None else ()

    def _records(self, batch: Batch) -> list[MetadataRecord]:
        if batch.is_control:
            return []
        found = [read_record(bytes(each.value or b"")) for each in batch.records()]
        self.is_complete = self.is_complete and not any(isinstance(each, UnknownRecord) for each in found)
        return [
            each for each in found if not isinstance(each, UnknownRecord) and each.type_number not in ABOUT_PROCESSES
        ]

    def _batches(self, is_ahead: bool) -> Iterator[tuple[Batch, bool]]:
        """Yield the good batches that say more than what is known, and whether something is missing before each."""
        kept, first = self._repair.kept, self._repair.name
        has_rest = False
        for name in self._storage.list(kept):
            if not name.endswith(".log") or name < first:
                continue
            content = read_file(self._storage, f"{kept}/{name}")
            end = self._repair.position if name == first else 0
            is_gap = is_ahead or has_rest or (not end and int(name[:20]) != self._next_offset)
            for batch in good_batches(content, end):
                is_gap = is_gap or batch.position > end
                end = batch.end_position
                if is_gap and batch.last_offset < self._next_offset:
                    continue  # a snapshot has it
                is_missing = is_gap and batch.base_offset > self._next_offset
                self.is_complete = self.is_complete and not is_missing
                if is_gap:
                    self._next_offset = batch.base_offset
                self._next_offset += batch.next_offset - batch.base_offset
                yield batch, is_gap
                is_gap = False
            has_rest = end < len(content)
        flushed_end = self._repair.flushed_end
        if self._next_offset < flushed_end or (flushed_end < 0 and (has_rest or not first)):
            self.is_complete = False


def forgotten(image: MetadataImage, name: str) -> list[MetadataRecord]:
    """Return what makes an image forget a topic that must have been deleted, and settings that nobody has."""
    from minibroker.stored.topics import ConfigRecord, RemoveTopicRecord

    topic = image.topics.get(name)
    if topic is not None:  # deleted in the gap
        return [RemoveTopicRecord(topic_id=topic.id)]
    names = image.topic_configs(name)
    return [ConfigRecord(resource_type=TOPIC, resource_name=name, name=each, value=None) for each in names]

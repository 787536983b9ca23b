"""Exactly once: records that a task has written of a batch are found again when the batch is repeated.

Each task keeps notes on the brokers, in a slot (batch_notes.py), one for each partition that it writes to: an
offset below which nothing of this batch lies, the producer id and epoch it is written with, and whose turn it is.

    first attempt:  offsets -> notes read -> notes written -> records
    repetition:     notes read -> notes written anew -> records read back, those of the producer and epoch of the notes
                    -> rows that are among them are left out -> the others go on at the next sequence number

A batch has an epoch of its own, one above that of the batch before, so what is there with it is of this batch.
What must hold: nothing of a batch is written before its note is; an attempt reads the notes again before each round of
requests, and gives up when they name another. So of an attempt that was thought dead one round may still arrive, and it
carries sequence numbers that the next attempt uses too: the broker takes only one of them. The other one is told so, or
believes that its batch was written; hence the first batch in each partition is read back and compared.
Kafka: epochs are counted up without asking a broker, as its own producer does without transactions (KIP-360).
Not here: sending (task.py), comparing rows (written_records.py). docs/adr/0006 says why it is made so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from minibroker.client.cluster import Cluster, TopicPartition
from minibroker.client.connection import error_of
from minibroker.client.fetching import FetchLimits, Position, fetch_request, version_for
from minibroker.client.offsets import READ_UNCOMMITTED, find_offsets
from minibroker.client.produce import new_producer
from minibroker.client.sessions import FetchSession
from minibroker.errors import Error, KafkaError
from minibroker.log.batches import SEQUENCE_MAX, Batch, batches
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.spark.brokers.fetching import CLEANED_MS, is_compacted
from minibroker.spark.columns.reader import ColumnReader
from minibroker.spark.sink.batch_notes import (
    BatchNotes,
    Note,
    NotRepeatable,
    Slots,
    first_of,
    in_doubt,
    matches,
    newest,
)
from minibroker.spark.sink.rows import Rows
from minibroker.spark.sink.written_records import WrittenRecords, digests_of

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData

SET_BY_PRODUCER = 0  # the kind of a timestamp
EPOCH_MAX = (1 << 15) - 2
FETCH_BYTES = 8 * 1024 * 1024
DECOMPRESSED_BYTES_MAX = 1 << 30
EMPTY_MS_MAX, EMPTY_PAUSE_MS = 120_000, 100  # how long records that are there may fail to come


class OtherAttempt(Exception):
    """Another attempt of the same task is at work; this one is to end."""


class ExactlyOnce:
    """The notes of one task on one batch."""

    def __init__(self, cluster: Cluster, name: str, task: int, batch: int, run: str):
        self.group = ""  # the slot, once it has been found
        self.in_doubt: list[str] = []  # slots with notes of this batch that another run has left
        self.task = task
        self.batch = batch
        self.run = run
        self.producer, self.epoch = -1, -1
        self.is_repeat = False
        self.found = WrittenRecords()
        self.sequences: dict[TopicPartition, int] = {}  # the next one, where something was found
        self._cluster = cluster
        self._slots = Slots(cluster, name)
        self._attempt = -1
        self._noted: dict[TopicPartition, Note] = {}
        self._seen: dict[TopicPartition, set[int]] = {}  # base offsets of batches that are counted, or our own
        self._compared: set[TopicPartition] = set()

    def __str__(self) -> str:
        return f"batch {self.batch}, group {self.group or self._slots.name}"

    async def begin(self, placed: list[Rows]) -> None:
        """Find the slot, with the help of the first rows, and what is there if this is a repetition."""
        self._attempt, _ = await new_producer(self._cluster)
        self.group, notes = await self._find_slot(placed)
        last = newest(notes)
        if last is None:
            self.producer, self.epoch = self._attempt, 0
        elif last.batch < self.batch:
            epochs = [note.epoch for note in notes.values() if note.producer == last.producer]
            self.producer, self.epoch = last.producer, max(epochs) + 1
            if self.epoch > EPOCH_MAX:
                self.producer, self.epoch = self._attempt, 0
        else:
            self._take_up(notes)
            await self._slots.write(self.group, self._noted)
            await self.look_again()

    async def _find_slot(self, placed: list[Rows]) -> tuple[str, BatchNotes]:
        own = self._slots.of(self.task)
        notes = (await self._slots.read([own]))[own]
        self._check_batch(notes)
        last = newest(notes)
        if last is not None and last.run == self.run and (last.batch < self.batch or last.task == self.task):
            return own, notes
        slots = await self._slots.read_all()
        slots.setdefault(own, {})
        for group, notes in slots.items():
            self._check_batch(notes)
            if any((note.batch, note.run, note.task) == (self.batch, self.run, self.task) for note in notes.values()):
                return group, notes
        self.in_doubt = in_doubt(slots, self.batch, self.run)
        first = first_of(placed)
        for group in sorted(self.in_doubt, key=lambda group: group != own):
            if matches(slots[group], self.batch, first):
                return group, slots[group]
        if own in self.in_doubt and await self._has_some_of(slots[own], placed):
            return own, slots[own]
        if any(note.batch == self.batch for note in slots[own].values()):
            return self._slots.of(self.task, self._attempt), {}
        return own, slots[own]

    def _check_batch(self, notes: BatchNotes) -> None:
        last = newest(notes)
        if last is not None and last.batch > self.batch:
            raise NotRepeatable(
                f"{self}: a later batch, {last.batch}, has been written: the checkpoint is older than what is in the "
                "topics, or another query uses a copy of it. With exactlyOnce false it is written nevertheless"
            )

    async def _has_some_of(self, notes: BatchNotes, placed: list[Rows]) -> bool:
        """Return whether any of the rows is among the records of a slot."""
        other = ExactlyOnce(self._cluster, self._slots.name, self.task, self.batch, self.run)
        await other.read_slot(notes)
        count = other.found.count
        for rows in placed:
            other.found.leave_out(rows)
        return other.found.count < count

    async def read_slot(self, notes: BatchNotes) -> None:
        """Find what lies there of the batch, for looking only."""
        self._take_up(notes)
        await self.look_again()

    def _take_up(self, notes: BatchNotes) -> None:
        last = newest(notes)
        assert last is not None
        self.is_repeat = True
        self.producer, self.epoch = last.producer, last.epoch
        self._noted = {
            key: note._replace(attempt=self._attempt, task=self.task, run=self.run)
            for key, note in notes.items()
            if note.batch == self.batch
        }

    async def note(self, placed: list[Rows]) -> None:
        """See to it that there are notes on all partitions that these rows go to."""
        new = {key: first for key, first in first_of(placed).items() if key not in self._noted}
        if not new:
            return
        # In this order: whoever reads the notes before these are there has read an offset before anything is written.
        offsets = await find_offsets(self._cluster, dict.fromkeys(new, "latest"), READ_UNCOMMITTED)
        await self.check()
        added = {}
        for key, found in offsets.items():
            if isinstance(found, KafkaError):
                raise found
            of_batch = (self.batch, self.producer, self.epoch, self._attempt, self.task, self.run)
            added[key] = Note(found.offset, *of_batch, new[key])
        await self._slots.write(self.group, added)
        self._noted |= added

    async def check(self) -> None:
        """Raise OtherAttempt if the notes are another attempt's."""
        for note in (await self._slots.read([self.group]))[self.group].values():
            if note.batch > self.batch or (note.batch == self.batch and note.attempt != self._attempt):
                raise OtherAttempt(
                    f"{self}: another attempt of this task has begun with batch {note.batch}, so this one ends"
                )

    async def look_again(self) -> None:
        """Read what has been written since the notes, by this attempt or others; what is new counts as found."""
        self.is_repeat = True
        for key, note in self._noted.items():
            await self._read_back(key, note.offset)

    async def written(self, rows: Rows, key: TopicPartition, base_offset: int) -> bool:
        """Take note of a batch of ours that the broker has acknowledged; return whether it is really there."""
        if self.is_repeat and key not in self._compared:
            async for batch in self._batches(key, base_offset, base_offset + 1):
                if sorted(_records(key[0], batch, 0)[0]) != sorted(
                    digests_of(rows.topic, rows.keys, rows.values, rows.headers)
                ):
                    return False
            self._compared.add(key)
        self._seen.setdefault(key, set()).add(base_offset)
        return True

    async def end(self) -> None:
        """Raise if something is wrong after all."""
        await self.check()
        if self.found.count:
            topic, partition = self.found.example() or ("", -1)
            raise NotRepeatable(
                f"{self}: {self.found.count} records of an earlier attempt, in {topic}-{partition} and elsewhere, are "
                "not among the rows that this task has now. The query gives other rows each time (chance, the time, "
                "an input that changed), or cuts them into other tasks (minPartitions, the number of shuffle "
                "partitions, partitions added to the topic): put that back. Of several writes in a foreachBatch "
                "function each needs a sinkName of its own. To write the batch as it is now, with some rows twice, run "
                "it once with exactlyOnce false"
            )

    # Reading back

    async def _read_back(self, key: TopicPartition, first_offset: int) -> None:
        seen = self._seen.setdefault(key, set())
        end_offset = (await find_offsets(self._cluster, {key: "latest"}, READ_UNCOMMITTED))[key]
        if isinstance(end_offset, KafkaError):
            raise end_offset
        async for batch in self._batches(key, first_offset, end_offset.offset):
            if batch.producer_id != self.producer or batch.producer_epoch != self.epoch or batch.is_control:
                continue
            self.sequences[key] = batch.last_sequence + 1 & SEQUENCE_MAX
            if batch.base_offset not in seen:
                seen.add(batch.base_offset)
                self.found.add(key, *_records(key[0], batch, first_offset))

    async def _batches(self, key: TopicPartition, first_offset: int, end_offset: int) -> AsyncIterator[Batch]:
        """Yield the batches that lie between two offsets."""
        position = Position(first_offset)
        clock = self._cluster.clock
        moved_ms = clock.steady_ms()
        while position.offset < end_offset:
            data = await self._cluster.retrying(lambda: self._fetch(key, position), [key[0]])
            before = position.offset
            for batch in batches(data.records or b""):
                if position.offset < end_offset:
                    position.offset = max(position.offset, batch.next_offset)
                    yield batch
            if position.offset > before:
                moved_ms = clock.steady_ms()
                continue
            # No end by itself: minibroker/spark/brokers/fetching.py says why.
            empty_ms = clock.steady_ms() - moved_ms
            if empty_ms >= CLEANED_MS and await is_compacted(self._cluster, key[0]):
                return
            if empty_ms >= EMPTY_MS_MAX:
                where = f"{key[0]}-{key[1]} at offset {before}"
                raise KafkaError(Error.REQUEST_TIMED_OUT, f"{where}: no records came within {EMPTY_MS_MAX} ms")
            await clock.sleep(EMPTY_PAUSE_MS)

    async def _fetch(
        self, key: TopicPartition, position: Position
    ) -> FetchResponse.FetchableTopicResponse.PartitionData:
        topic, partition = key
        leader = await self._cluster.leader_of(topic, partition)
        position.topic_id = (await self._cluster.topic(topic)).id
        connection = await self._cluster.connection(leader.leader_id)
        version = version_for(connection.version_of(FetchRequest), [position])
        limits = FetchLimits(0, 0, FETCH_BYTES, FETCH_BYTES, DECOMPRESSED_BYTES_MAX, READ_UNCOMMITTED, True)
        request = fetch_request({key: position}, limits, FetchSession(enabled=False))
        answer: FetchResponse = await self._cluster.call(request, leader.leader_id, version=version)
        data = answer.responses[0].partitions[0]
        if data.error_code == Error.OFFSET_OUT_OF_RANGE:
            # Retention has removed what was there; it was written, and would be removed again.
            found = (await find_offsets(self._cluster, {key: "earliest"}, READ_UNCOMMITTED))[key]
            if not isinstance(found, KafkaError) and found.offset > position.offset:
                position.offset = found.offset
                return await self._fetch(key, position)
        if data.error_code:
            raise error_of(data.error_code, f"{topic}-{partition} at offset {position.offset}")
        return data


def _records(topic: str, batch: Batch, first_offset: int) -> tuple[list[bytes], list[int | None]]:
    """Return digests and times of the records of a batch; no times if the broker has set them."""
    chunk = batch.view
    found: list[bytes] = []
    times: list[int | None] = []
    for columns in ColumnReader(chunk, first_offset=first_offset, headers=True, limit_bytes=DECOMPRESSED_BYTES_MAX):
        found += digests_of(topic, columns.keys, columns.values, columns.headers)
        for time, kind in zip(columns.timestamps.tolist(), columns.timestamp_types.tolist(), strict=True):
            times.append(time if kind == SET_BY_PRODUCER else None)
    return found, times


async def unclaimed(cluster: Cluster, name: str, groups: Iterable[str], batch: int) -> str:
    """Return which of these slots have records of a batch, in words; empty if none has."""
    found = []
    for group, notes in (await Slots(cluster, name).read(list(groups))).items():
        once = ExactlyOnce(cluster, name, -1, batch, "")
        if any(note.batch == batch for note in notes.values()):
            await once.read_slot(notes)
        if once.found.count:
            topic, partition = once.found.example() or ("", -1)
            found.append(f"{once.found.count} of {group}, in {topic}-{partition} and elsewhere")
    return "; ".join(found)

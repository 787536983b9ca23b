"""Partition of __consumer_offsets that this broker leads: its groups in memory, its records in the log.

    read                   groups are made of the records, and their sessions begin
    a record written       counts at once for whoever decides, and when it is committed for whoever asks
    refused                is taken back, or all is read again

What must hold: nobody is told what could be lost with this broker; a committed offset is seen when it is safe; a group
is forgotten when the record that says so is safe.
Not here: reading, writing, waiting, when it begins and ends (coordinator/log.py, coordinator/partitions.py), the groups
(minibroker/groups), requests (handlers).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from minibroker.clock import CHORE
from minibroker.config.resources import GroupConfig
from minibroker.coordinator.log import NO_HEAD, BatchHead, EncodedRecord, Write, records_bytes
from minibroker.coordinator.partitions import RETRY_MS, LedPartition, LedPartitions, bytes_of, write_error
from minibroker.errors import EncodeError, Error, KafkaError
from minibroker.event_kinds import Commit, GroupMembers
from minibroker.event_kinds import Group as GroupEvent
from minibroker.groups.classic import ClassicGroup, Done
from minibroker.groups.classic_states import DEAD
from minibroker.groups.consumer import ConsumerGroup
from minibroker.groups.migration import classic_group
from minibroker.groups.offsets import Mark, OpenOffsets
from minibroker.groups.patterns import resolve_in_shares
from minibroker.groups.records import CoordinatorRecord, decode, encode
from minibroker.groups.shard import Group, Shard
from minibroker.groups.topics import ImageTopics
from minibroker.log.batches import Batch
from minibroker.log.build import build_transaction_marker
from minibroker.log.formats import COMMIT
from minibroker.log.records import Record, control_type
from minibroker.metadata.image import GROUP
from minibroker.parts import Parts
from minibroker.replication.replica import Replica
from minibroker.stored.group_offsets import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from minibroker.turns import FIRST_US

if TYPE_CHECKING:
    from minibroker.clock import Timer
    from minibroker.groups.member_events import MemberRow

NO_ID: Final = bytes(16)

GROUP_US: Final = 20  # what a group takes of which all records are there
PART_US: Final = 3  # and each of its members and offsets
SETTLED_US: Final = 2  # an offset of a transaction that has ended
SETTLED_TOGETHER: Final = 100  # of them in one turn of the loop
WRITE_US: Final = 20  # what it takes to write a record
WHYS: Final = {
    "Assigning": "what its members are to have is not worked out yet",
    "Reconciling": "members have still to give up or to get what they are to have",
    "Stable": "every member has what it is to have",
}
Face = tuple[str, frozenset[str], bool]  # of a group: its state, who is in, and whether it is a consumer group
NO_FACE: Final[Face] = ("Empty", frozenset(), True)


class GroupWrite(Write):
    """Records of groups that are written together."""

    __slots__ = ("ending", "group_id", "is_ahead", "marks", "replay", "settling")

    def __init__(
        self, group_id: str, encoded: Sequence[EncodedRecord], done: Done | None, *, head: BatchHead | None = None
    ):
        super().__init__(encoded, done, head=head)
        self.group_id = group_id
        self.marks: Sequence[Mark] = ()  # offsets that count when this is committed
        self.ending: Sequence[Group] = ()  # groups that are gone then
        self.is_ahead = False  # what is in memory cannot be made as it was before, if the records cannot be written
        self.settling: Generator[int, None, None] | None = None  # of a marker: what makes its offsets count then
        self.replay: Callable[[], object] | None = None  # a record that was read above the high watermark


class OffsetsPartition(LedPartition):
    """One partition of the topic that this broker leads, from when it leads to when it does no more."""

    def __init__(
        self,
        partitions: LedPartitions[OffsetsPartition],
        replica: Replica,
        topics: ImageTopics,
        follow_clock: Callable[[], None],
    ):
        """follow_clock: to be called before a session begins or ends."""
        config = partitions.parts.config
        super().__init__(
            partitions,
            replica,
            codec=config["offsets.topic.compression.codec"],
            timeout_ms=config["offsets.commit.timeout.ms"],
        )
        self.topics = topics
        self.shard = Shard(config, self.settings_of, self.write, self.parts.clock.now_ms, self._tell)
        self._follow_clock = follow_clock
        self._in_flight: dict[str, int] = {}  # by group how many writes are not committed
        self._timers: dict[str, tuple[int, Timer]] = {}  # by group
        self.log.load()

    def settings_of(self, group_id: str) -> GroupConfig:
        return GroupConfig(self.parts.image.configs.get((GROUP, group_id), {}), self.parts.config)

    def is_safe(self, group_id: str) -> bool:
        """Whether every replica in sync has all that a group is made of: otherwise an answer has to wait."""
        return group_id not in self._in_flight

    # Reading

    def take_record(self, batch: Batch, record: Record, is_safe: bool) -> Iterable[int]:
        """Take what is read; a group with records above the high watermark waits: members may know of the last of them.

        Kafka: begins at once, and may show offsets that are older than those it has acknowledged before.
        """
        if batch.is_control:
            is_commit = control_type(record) == COMMIT
            ended = self.shard.offsets.end_transaction(batch.producer_id, commit=is_commit)
            return () if ended is None else self._take_end(ended, is_safe, record.offset)
        decoded = decode(bytes_of(record.key), bytes_of(record.value))
        if decoded is None:
            return ()
        key, value = decoded
        if isinstance(key, OffsetCommitKey):
            producer_id = batch.producer_id if batch.magic == 2 and batch.is_transactional else -1
            last = self.shard.replay_offset(key, value, producer_id)  # type: ignore[arg-type]
            self._take_offset(key.group, last, is_safe, record.offset)
        elif is_safe:
            self.shard.replay(key, value)
        else:
            group_id = key.group if isinstance(key, GroupMetadataKey) else key.group_id  # type: ignore[attr-defined]
            write = GroupWrite(group_id, (), None)
            write.replay = partial(self.shard.replay, key, value)
            self._take_unsafe(write, record.offset)
        return ()

    def _take_end(self, ended: OpenOffsets, is_safe: bool, offset: int) -> Iterable[int]:
        """Take a marker that is read."""
        if is_safe:
            return self._settle(ended)
        write = GroupWrite("", (), None)
        write.settling = self._settle_loaded(ended, write)
        self._begin_write(write)
        self.log.load_in_flight(write, offset + 1)
        self._unsafe |= dict.fromkeys(ended.groups, write)
        return ()

    def _settle_loaded(self, ended: OpenOffsets, write: GroupWrite) -> Generator[int, None, None]:
        yield from self._settle(ended)
        for group_id in ended.groups if ended.is_settled else ():
            self._take_safe(group_id, write)

    def _take_offset(self, group_id: str, mark: Mark | None, is_safe: bool, offset: int) -> None:
        if not is_safe:
            write = GroupWrite(group_id, (), None)
            write.marks = () if mark is None else (mark,)
            self._take_unsafe(write, offset)
        elif mark is not None:
            self.shard.offsets.commit(mark)

    def _take_unsafe(self, write: GroupWrite, offset: int) -> None:
        self._begin_write(write)
        self.take_unsafe(write.group_id, write, offset)

    def prepare(self) -> Iterator[int]:
        """Make groups of what was read, and begin their sessions."""
        shard, clock, spent_us = self.shard, self.parts.clock, FIRST_US
        for group_id in shard.loaded_ids():
            if spent_us >= FIRST_US:
                yield spent_us
                spent_us = 0
                self._follow_clock()  # or the sessions that begin now would be moved with the others
            shard.load_group(group_id, clock.now_ms())
            self.arm(group_id)
            spent_us += GROUP_US + PART_US * shard.count_of(group_id)

    def loaded(self) -> None:
        """Coordinate."""
        super().loaded()
        for group in self.shard.groups.values():
            if group.group_id not in self._unsafe:
                self._tell_loaded(group)
        self._delete_gone()

    # Writing

    def write(
        self,
        group_id: str,
        records: Sequence[CoordinatorRecord],
        done: Done,
        *,
        ending: Sequence[Group] = (),
        is_atomic: bool = True,
        head: BatchHead | None = None,
        encoded: list[EncodedRecord] | None = None,
    ) -> None:
        """Write records of a group; `done` is told when every replica in sync has them, or why not.

        Whoever decides goes by them at once. ending: groups that they delete, the records of which are the last.
        is_atomic: they belong together; otherwise they go into as many batches as they need. head: of which transaction
        they are offsets, which count when that has been committed. encoded: the records, if that was done in shares.
        """
        try:
            self._append(group_id, records, done, ending=ending, is_atomic=is_atomic, head=head, encoded=encoded)
        except KafkaError as error:
            done(write_error(error))

    def commit(
        self, group_id: str, records: Sequence[CoordinatorRecord], done: Done, encoded: list[EncodedRecord]
    ) -> None:
        """Do what `write` does, of offsets; where no other replica has to have them, in this turn of the loop."""
        if self.log.is_alone:
            try:
                self.log.append_alone(encoded)
            except KafkaError as error:
                done(write_error(error))
                return
            for mark in self.shard.store(records):
                self._tell_commit(mark)
            done(Error.NONE)
        else:
            self.write(group_id, records, done, encoded=encoded)
        self.arm(group_id)

    def change(
        self,
        group: ConsumerGroup,
        records: list[CoordinatorRecord],
        done: Done,
        *,
        applied: Sequence[CoordinatorRecord] | None = None,
    ) -> None:
        """Carry out an operation on a consumer group: its records make the change, here and in the log.

        applied: records in front of these that the group has taken already, as it came from a classic one.
        """
        shard, group_id, now_ms = self.shard, group.group_id, self.parts.clock.now_ms()
        becomes, group.becomes = group.becomes, None
        try:
            self._append(group_id, [*(applied or ()), *records], done, is_ahead=True)
        except KafkaError as error:
            group.resume(now_ms + RETRY_MS)
            self.arm(group_id)
            done(write_error(error))
            return
        old = shard.groups.get(group_id)
        before = self._look_at(group_id) if self.parts.events.observed else None
        shard.groups[group_id] = group
        if isinstance(old, ClassicGroup):
            old.end(Error.REBALANCE_IN_PROGRESS, now_ms)
        if becomes is None:
            for key, value in records:
                if not isinstance(key, GroupMetadataKey):
                    group.apply(key, value)
        else:
            shard.groups[group_id] = classic_group(becomes, partial(shard.new_classic, group_id), now_ms)
        if before is not None:
            self._tell_change(group_id, *before)
        self.arm(group_id)

    def end_consumer_group(self, group: ConsumerGroup) -> None:
        """Delete a group that nobody is in, for one of the classic protocol to take its place."""
        try:
            self._append(group.group_id, group.tombstones(), None, ending=[group], is_ahead=True)
        except KafkaError as error:
            raise KafkaError(write_error(error), error.message) from None

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        done: Done,
        *,
        commit: bool,
        transaction_version: int,
    ) -> None:
        """Write the marker that ends a transaction: its offsets are committed with it, or forgotten."""
        marker = build_transaction_marker(
            commit=commit,
            offset=0,
            timestamp=self.parts.clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
        )
        head = BatchHead(producer_id, producer_epoch, control=marker, transaction_version=transaction_version)
        ended: OpenOffsets | None = None

        def safe(error: Error) -> None:
            if error or ended is None or ended.is_settled:
                done(error)
            else:
                ended.settled = done

        write = GroupWrite("", (), safe, head=head)
        try:
            self.log.append(write)
        except KafkaError as error:
            done(write_error(error))
            return
        ended = self.shard.offsets.end_transaction(producer_id, commit=commit)
        if ended is not None:
            write.settling = self._settle(ended)
        self._begin_write(write)

    def _settle(self, ended: OpenOffsets) -> Generator[int, None, None]:
        """Let the offsets of a transaction count, or forget them, some at a time."""
        for count, mark in enumerate(self.shard.offsets.settle(ended), 1):
            if mark is not None:
                self._tell_commit(mark)
            if not count % SETTLED_TOGETHER:
                yield SETTLED_TOGETHER * SETTLED_US
                if self.log.is_closed:
                    break
        if ended.settled is not None:
            ended.settled(Error.NONE if ended.is_settled else Error.NOT_COORDINATOR)

    def _append(
        self,
        group_id: str,
        records: Sequence[CoordinatorRecord],
        done: Done | None,
        *,
        ending: Sequence[Group] = (),
        is_atomic: bool = True,
        is_ahead: bool = False,
        head: BatchHead | None = None,
        encoded: list[EncodedRecord] | None = None,
    ) -> None:
        """Have records written; KafkaError if that cannot be, and then nothing has happened."""
        encoded = encoded or self._encoded(group_id, records)
        pieces = [(0, len(records))] if is_atomic else _pieces(encoded, self.log.batch_bytes_max)
        if len(pieces) > 1:
            assert done is not None
            done = Joint(len(pieces), done)
        for index, (start, end) in enumerate(pieces):
            write = GroupWrite(group_id, encoded[start:end], done, head=head)
            write.is_ahead = (is_ahead and bool(records)) or self._ends_pending(records[start:end])
            try:
                self.log.append(write)
            except KafkaError as error:
                if index == 0:
                    raise
                for _ in pieces[index:]:  # those before may come to count
                    done(write_error(error))  # type: ignore[misc]
                return
            write.marks = self.shard.append(
                records[start:end], NO_HEAD.producer_id if head is None else head.producer_id
            )
            self._begin_write(write)
            if end == len(records):
                write.ending = ending
                for group in ending:
                    self.shard.begin_end(group)
                    self.arm(group.group_id)

    def _ends_pending(self, records: Sequence[CoordinatorRecord]) -> bool:
        """Whether records delete what open transactions would commit."""
        offsets = self.shard.offsets
        return offsets.has_any_pending and any(
            value is None
            and isinstance(key, OffsetCommitKey)
            and offsets.has_pending(key.group, (key.topic, key.partition))
            for key, value in records
        )

    def _encoded(self, group_id: str, records: Sequence[CoordinatorRecord]) -> list[EncodedRecord]:
        return [encoded_of(group_id, record, self.parts) for record in records]

    def _begin_write(self, write: GroupWrite) -> None:
        self._in_flight[write.group_id] = self._in_flight.get(write.group_id, 0) + 1

    def _end_write(self, write: GroupWrite) -> None:
        left = self._in_flight.get(write.group_id, 0) - 1
        if left > 0:
            self._in_flight[write.group_id] = left
        else:
            self._in_flight.pop(write.group_id, None)

    def committed(self, write: Write) -> None:
        """Let records count for whoever asks."""
        assert isinstance(write, GroupWrite)
        shard, group_id = self.shard, write.group_id
        marks, write.marks = write.marks, ()
        self._end_write(write)
        for mark in marks:
            shard.offsets.commit(mark)
            self._tell_commit(mark)
        if write.settling is not None:
            self.parts.shares.begin(write.settling)
        for group in write.ending:
            shard.end_group(group, self.parts.clock.now_ms())
        if write.replay is not None:
            write.replay()
        if self._unsafe:
            self._take_safe(group_id, write)

    def _take_safe(self, group_id: str, write: GroupWrite) -> None:
        """What was read of a group is safe, if a write was the last of it."""
        if self.take_safe(group_id, write):
            self._follow_clock()  # sessions begin now
            self.shard.load_group(group_id, self.parts.clock.now_ms())
            self.arm(group_id)
            loaded = self.shard.find(group_id)
            if loaded is not None:
                self._tell_loaded(loaded)

    def refused(self, writes: Sequence[Write], error: KafkaError) -> None:
        """Take back what cannot be written."""
        shard, is_ahead = self.shard, error.code == Error.UNKNOWN_SERVER_ERROR
        shard.offsets.take_back(mark for write in self.log.not_committed() for mark in write.marks)  # type: ignore[attr-defined]
        for write in writes:
            assert isinstance(write, GroupWrite)
            is_ahead = is_ahead or write.is_ahead
            self._end_write(write)
            for group in write.ending:
                shard.keep(group)
                self.arm(group.group_id)
        shard.make_groups_of_offsets()
        super().refused(writes, error)
        if is_ahead and not self.log.is_closed:
            self._begin_again()

    def before_answers(self) -> None:
        self._follow_clock()  # sessions may begin with them

    def answered(self, write: Write) -> None:
        assert isinstance(write, GroupWrite)
        self.arm(write.group_id)

    # What has had its time

    def delete_expired(self) -> None:
        """Delete offsets that nobody needs any more, and groups without others."""
        if not self.is_loading and self.failure is None:
            self.parts.shares.begin(self._delete_expired_in_shares())

    def _delete_expired_in_shares(self) -> Generator[int, None, None]:
        retention_ms = self.parts.config["offsets.retention.minutes"] * 60_000
        for group in list(self.shard.groups.values()):
            group_id = group.group_id
            yield GROUP_US + PART_US * self.shard.count_of(group_id)
            if self.log.is_closed:
                return
            if group_id in self._unsafe or self.shard.groups.get(group_id) is not group:
                continue
            records, is_over = self.shard.expired(group, self.parts.clock.now_ms(), retention_ms, self._is_gone)
            if records:
                self.write("", records, nobody_waits, ending=[group] if is_over else [], is_atomic=False)
                yield WRITE_US * len(records)

    def _delete_gone(self) -> None:
        """Delete the offsets of topics that went while nobody coordinated, or could write."""
        self.parts.shares.begin(self._delete_gone_in_shares())

    def _delete_gone_in_shares(self) -> Generator[int, None, None]:
        for group_id in self.shard.offsets.groups():
            if self.log.is_closed:
                return
            records = self.shard.topics_deleted(group_id, self._is_gone)
            if records:
                self.write("", records, self._gone_deleted, is_atomic=False)
            yield GROUP_US + PART_US * self.shard.count_of(group_id) + WRITE_US * len(records)

    def topics_deleted(self) -> None:
        """Topics are gone; while records are being read that is looked at in the end."""
        if not self.is_loading and self.failure is None:
            self._delete_gone()

    def _gone_deleted(self, error: Error) -> None:
        if error not in (Error.NONE, Error.NOT_COORDINATOR) and self._retry is None and not self.log.is_closed:
            self._retry = self.parts.clock.after(RETRY_MS, self._delete_gone_again, CHORE)

    def _delete_gone_again(self) -> None:
        self._retry = None
        self.topics_deleted()

    def _is_gone(self, topic: str, offset: OffsetCommitValue) -> bool:
        """Say whether the topic that an offset is of has been deleted, also if there is one of the same name.

        Who coordinates knows all metadata from before it began, and records can only be of topics of then: so a topic
        that is not there has been deleted.
        """
        found = self.parts.image.topics.get(topic)
        return found is None or bytes(offset.topic_id) not in (NO_ID, found.id)

    # Time

    def arm(self, group_id: str) -> None:
        """Wake up for a group when it wants that; to be called after whatever changed it."""
        if self._unsafe and group_id in self._unsafe:
            return  # what is due cannot be said before its last records are safe
        group, armed = self.shard.groups.get(group_id), self._timers.get(group_id)
        wake_ms = None if group is None else group.deadline_ms()
        if armed is not None and (wake_ms is None or wake_ms < armed[0]):
            armed[1].cancel()
            del self._timers[group_id]
            armed = None
        if wake_ms is not None and armed is None:
            delay_ms = max(wake_ms - self.parts.clock.now_ms(), 0)
            self._timers[group_id] = (wake_ms, self.parts.clock.after(delay_ms, partial(self._ring, group_id)))

    def shift(self, by_ms: int) -> None:
        """The clock has been set: what is due is due so much later by it."""
        for group in self.shard.groups.values():
            group.shift(by_ms)
        self._timers = {group_id: (wake_ms + by_ms, timer) for group_id, (wake_ms, timer) in self._timers.items()}

    def _ring(self, group_id: str) -> None:
        self._follow_clock()
        self._timers.pop(group_id, None)
        group = self.shard.groups.get(group_id)
        now_ms = self.parts.clock.now_ms()
        if isinstance(group, ClassicGroup):
            group.expire(now_ms)
            self.shard.drop_unwritten(group_id, now_ms)
        elif group is not None:
            while (due_ms := group.deadline_ms()) is not None and due_ms <= now_ms:
                wanted = group.timers.take_patterns(now_ms)
                if wanted is not None:
                    self.parts.shares.begin(self._resolve(group, wanted))
                    continue
                settings = self.settings_of(group_id)
                records = group.expire(now_ms, topics=self.topics, config=settings)
                self.change(group, records, nobody_waits)
                if self.shard.groups.get(group_id) is not group:
                    break
        self.arm(group_id)

    # Regular expressions

    def _resolve(self, group: ConsumerGroup, wanted: frozenset[str]) -> Generator[int, None, None]:
        """Look which topics match: at once if they are few, else in shares."""
        topics = self.topics
        version = topics.version
        found = yield from resolve_in_shares(wanted, list(topics.names()), group.timers.may_see)
        if not self.log.is_closed and self.shard.groups.get(group.group_id) is group:
            records = group.patterns_resolved(found, version, self.parts.clock.now_ms(), topics)
            self.change(group, records, nobody_waits)

    # Events: who waits for a group knows by them when to look

    def _tell(self, group_id: str, before: str, after: str, why: str) -> None:
        """before: the state; nothing if the group has just come into being, which is no change of it."""
        if self.parts.events.observed:
            if before:
                self.parts.events.emit(GroupEvent(self.parts.node_id, group_id, before, after, why))
            if isinstance(group := self.shard.groups.get(group_id), ClassicGroup):
                self.parts.events.emit(GroupMembers(self.parts.node_id, group_id, *self._members_of(group)))

    def _members_of(self, group: Group) -> tuple[int, tuple[MemberRow, ...]]:
        """Return epoch and members of a group, as events tell of them."""
        from minibroker.groups.member_events import member_rows

        return member_rows(group, self.topics, self.settings_of(group.group_id))

    def _look_at(self, group_id: str) -> tuple[Face, object]:
        """Return what a change of a consumer group may alter."""
        group = self.shard.groups.get(group_id)
        return self._face_of(group_id), None if group is None else self._members_of(group)

    def _tell_commit(self, mark: Mark) -> None:
        if "commit" in self.parts.events.wanted:
            group, (topic, partition), stored = mark
            offset = -1 if stored.value is None else stored.value.offset
            self.parts.events.emit(Commit(self.parts.node_id, topic, partition, group, offset))

    def _tell_loaded(self, group: Group) -> None:
        """Another broker coordinated it before, or this one in another life."""
        state = group.state.name
        self._tell(group.group_id, state, state, f"broker {self.parts.node_id} coordinates it now")

    def _face_of(self, group_id: str) -> Face:
        group = self.shard.groups.get(group_id)
        return NO_FACE if group is None else (group.state.name, frozenset(group.member_ids), group.kind == "consumer")

    def _tell_change(self, group_id: str, before: Face, members_before: object) -> None:
        """Tell of what has become of a consumer group, if anything has."""
        after, members = self._look_at(group_id)
        if before != after:
            self._tell_face(group_id, before, after)
        if members is not None and members != members_before:
            self.parts.events.emit(
                GroupMembers(self.parts.node_id, group_id, *self._members_of(self.shard.groups[group_id]))
            )

    def _tell_face(self, group_id: str, before: Face, after: Face) -> None:
        was = before[0] if before[2] else DEAD.name  # the classic group that it was has ended, and said so
        came, went = sorted(after[1] - before[1]), sorted(before[1] - after[1])
        whys = [f"{', '.join(came)} has joined"] if came else []
        whys += [f"{', '.join(went)} is gone"] if went else []
        self._tell(group_id, was, after[0], " and ".join(whys) or WHYS.get(after[0], "its rows say so"))

    # The end

    def resign(self) -> None:
        """Coordinate no more: who waits has to look for another."""
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        super().resign()
        self.shard.end(self.parts.clock.now_ms())


def encoded_of(group_id: str, record: CoordinatorRecord, parts: Parts) -> EncodedRecord:
    """Return key and value of a record of a group; KafkaError if they cannot be written."""
    try:
        return encode(record, is_before_4=parts.emulated.is_before_4)
    except EncodeError as failure:
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR, f"a record of group {group_id[:100]!r}: {failure}") from None


class Joint:
    """Told of each of several writes; who waits is told when all are safe, and the first error if one is not."""

    def __init__(self, count: int, done: Done):
        self._left = count
        self._error = Error.NONE
        self._done = done

    def __call__(self, error: Error) -> None:
        self._left -= 1
        self._error = self._error or error
        if not self._left:
            self._done(self._error)


def _pieces(records: Sequence[EncodedRecord], size_bytes_max: int) -> list[tuple[int, int]]:
    """Return from where to where records go into batches of at most a size; a larger one has a batch of its own."""
    pieces = []
    start, size_bytes = 0, records_bytes(())
    for index, record in enumerate(records):
        record_bytes = records_bytes((record,)) - records_bytes(())
        if index > start and size_bytes + record_bytes > size_bytes_max:
            pieces.append((start, index))
            start, size_bytes = index, records_bytes(())
        size_bytes += record_bytes
    return [*pieces, (start, len(records))]


def nobody_waits(error: Error) -> None:
    """What is written because time has passed is tried again when more has passed."""

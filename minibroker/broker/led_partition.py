"""One partition of __consumer_offsets that this broker leads: its groups in memory, its rows in the log.

    begins                 reads all rows; answers for its groups when what it has read is safe
    ends                   tells who waits, and forgets
    rows of a request      are appended together with those of others that came in the same turn of the loop
    an answer              waits until every replica in sync has the rows

What must hold: nobody is told what could be lost with this broker; a committed offset is seen when it is safe.
Not here: the groups themselves (minibroker/groups), requests (handlers).
"""

from __future__ import annotations

from collections import deque
from functools import partial

from minibroker.broker.group_events import face_of, tell, tell_change, tell_commit, tell_loaded
from minibroker.errors import Error, KafkaError, ProtocolError
from minibroker.groups.classic import ClassicGroup
from minibroker.groups.consumer import ConsumerGroup
from minibroker.groups.migration import classic_group
from minibroker.groups.records import decode, encode
from minibroker.groups.shard import Shard
from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.formats import COMMIT
from minibroker.log.reading import read
from minibroker.log.records import Record, control_type
from minibroker.log.validate import COORDINATOR
from minibroker.replication import bugs
from minibroker.stored.group_offsets import GroupMetadataKey, OffsetCommitKey

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from minibroker.broker.coordinator import Coordinator
    from minibroker.clock import Timer
    from minibroker.groups.classic import Done
    from minibroker.groups.records import Row
    from minibroker.replication.replica import Replica

    Write = tuple[str, list[Row], Done]  # for which group

LOAD_BYTES = 1 << 20  # read in one turn of the loop
BATCH_BYTES_MAX = 512 << 10  # rows of several requests go into one batch up to here
# What a client is told of a row that could not be written: to look for another coordinator, or to ask again.
WRITE_ERRORS = {
    Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR,
    Error.FENCED_LEADER_EPOCH: Error.NOT_COORDINATOR,
    Error.KAFKA_STORAGE_ERROR: Error.NOT_COORDINATOR,
    Error.UNKNOWN_TOPIC_OR_PARTITION: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Error.COORDINATOR_NOT_AVAILABLE,
    Error.REQUEST_TIMED_OUT: Error.COORDINATOR_NOT_AVAILABLE,
}


class LedPartition:
    """One partition of the topic that this broker leads, from when it leads to when it does no more."""

    def __init__(self, coordinator: Coordinator, replica: Replica):
        self.coordinator = coordinator
        self.node = coordinator.node
        self.replica = replica
        self.epoch = replica.leader_epoch
        self.is_loading = True
        self._read_to = -1  # the end of what there was to read, once it has been read
        self._has_resigned = False
        node, settings_of = self.node, coordinator.settings_of
        self.shard = Shard(node.config, settings_of, self.write, node.clock.now_ms, partial(tell, node))
        self._writes: list[Write] = []  # of this turn of the loop
        self._unseen: deque[tuple[int, Callable[[], object]]] = deque()  # what counts when the offset is committed
        self._waiting: deque[tuple[int, int, str, Done]] = deque()  # end offset, until when, who waits
        self._timers: dict[str, tuple[int, Timer]] = {}  # by group
        self._patience: Timer | None = None
        replica.waiters[self._moved] = None
        self._load(replica.log.log_start_offset)

    # Reading

    def _load(self, offset: int) -> None:
        """Read on from an offset, for one turn of the loop."""
        log = self.replica.log
        if self._has_resigned:
            return
        try:
            while found := read(log, offset, LOAD_BYTES, limit_offset=log.next_offset):
                begun = offset
                for batch in batches(found.view()):
                    self._take_batch(batch, begun)
                    offset = batch.last_offset + 1
                if offset == begun:
                    break
                if log.next_offset - offset > 0 and len(found.view()) >= LOAD_BYTES:
                    import asyncio

                    asyncio.get_running_loop().call_soon(self._load, offset)
                    return
        except (KafkaError, ProtocolError) as failure:
            self.node.reporter.say(f"{log.directory}: its groups cannot be read from {offset} on: {failure}")
        self._read_to = log.next_offset
        self._begin_if_safe()

    def _begin_if_safe(self) -> None:
        """Coordinate as soon as every replica in sync has all that was read: members may know of the last row of it.

        Kafka: begins at once, and may show offsets that are older than those it has acknowledged before.
        """
        if self.replica.high_watermark < self._read_to and "begins-before-safe" not in bugs.planted:
            return
        self.is_loading = False
        self._see()
        self.coordinator.follow_clock()  # or the sessions that begin now would be moved with the others
        self.shard.loaded(self.node.clock.now_ms())
        for group_id in self.shard.groups:
            self.arm(group_id)
        tell_loaded(self.node, self.shard)

    def _take_batch(self, batch, begun: int) -> None:  # type: ignore[no-untyped-def]
        shard, high_watermark = self.shard, self.replica.high_watermark
        producer_id = batch.producer_id if batch.magic == 2 and batch.is_transactional else -1
        for record in batch.records():
            if record.offset < begun:
                continue
            if batch.is_control:
                commit = control_type(record) == COMMIT
                act = partial(shard.offsets.end_transaction, batch.producer_id, commit=commit)
            else:
                try:
                    row = decode(_bytes(record.key), _bytes(record.value))
                except ProtocolError as failure:
                    self.node.reporter.say(f"{self.replica.log.directory}: record {record.offset}: {failure}")
                    continue
                if row is None:
                    continue
                act = partial(shard.apply, *row, record.offset, producer_id)
                if not isinstance(row[0], OffsetCommitKey):
                    act()
                    continue
                if producer_id < 0 and record.offset >= high_watermark:
                    act = partial(self._commit, row[0], row[1], record.offset)
            if record.offset < high_watermark:
                act()
            elif "forgets-unsafe-offsets" not in bugs.planted:
                self._unseen.append((record.offset, act))

    # Writing

    def write(self, group_id: str, rows: list[Row], done: Done) -> None:
        """Append rows of a group; `done` is told when every replica in sync has them, or why not.

        Offsets count when they are safe. A classic group knows itself: its row is for who comes after this broker.
        """
        if self._has_resigned:
            done(Error.NOT_COORDINATOR)
            return
        self._writes.append((group_id, rows, done))
        if len(self._writes) == 1:
            import asyncio

            asyncio.get_running_loop().call_soon(self._flush)

    def change(self, group: ConsumerGroup, rows: list[Row], done: Done, *, applied: list[Row] | None = None) -> None:
        """Carry out what an operation on a consumer group has come to: its rows make the change, here and in the log.

        applied: rows in front of these that the group has taken already, as it came from a classic one.
        """
        shard, group_id, now_ms = self.shard, group.group_id, self.node.clock.now_ms()
        before = face_of(self.node, shard, group_id)
        old = shard.groups.get(group_id)
        shard.groups[group_id] = group
        if isinstance(old, ClassicGroup):
            old.end(Error.REBALANCE_IN_PROGRESS, now_ms)
        becomes, group.becomes = group.becomes, None
        if becomes is None:
            for key, value in rows:
                if not isinstance(key, GroupMetadataKey):
                    group.apply(key, value)
        self.write(group_id, [*(applied or ()), *rows], done)
        if becomes is not None:
            shard.groups[group_id] = classic_group(becomes, partial(shard.new_classic, group_id), now_ms)
        tell_change(self.node, shard, group_id, before)
        self.arm(group_id)

    @property
    def is_safe(self) -> bool:
        """Whether every replica in sync has all that groups here are made of: otherwise an answer has to wait."""
        return not self._writes and self.replica.high_watermark >= self.replica.log.next_offset

    def _flush(self) -> None:
        """Append what has come in this turn."""
        writes, self._writes = self._writes, []
        is_before_4 = self.node.appearance.is_before_4
        now_ms = self.node.clock.now_ms()
        batch: list[Write] = []
        records: list[Record] = []
        size_bytes = 0
        for group_id, rows, done in writes:
            encoded = [encode(row, is_before_4=is_before_4) for row in rows]
            more_bytes = sum(len(key) + len(value or b"") for key, value in encoded)
            if batch and size_bytes + more_bytes > BATCH_BYTES_MAX:
                self._append(batch, records, now_ms)
                batch, records, size_bytes = [], [], 0
            batch.append((group_id, rows, done))
            start = len(records)
            records += [Record(key, value, (), now_ms, start + at) for at, (key, value) in enumerate(encoded)]
            size_bytes += more_bytes
        if batch:
            self._append(batch, records, now_ms)

    def _append(self, batch: list[Write], records: list[Record], now_ms: int) -> None:
        if self._has_resigned:
            for _, _, done in batch:
                done(Error.NOT_COORDINATOR)
            return
        try:
            offset = self.replica.log.next_offset
            if records:
                codec = self.node.config["offsets.topic.compression.codec"]
                data = bytearray(build_batch(2, records, codec=codec))
                offset = self.replica.append(data, now_ms=now_ms, acks=-1, origin=COORDINATOR).first_offset
        except KafkaError as error:
            self._refused(batch, error)
            return
        timeout_ms = now_ms + self.node.config["offsets.commit.timeout.ms"]
        for group_id, rows, done in batch:
            for key, value in rows:
                if isinstance(key, OffsetCommitKey):
                    self._unseen.append((offset, partial(self._commit, key, value, offset)))
                    if "shows-unsafe-offsets" in bugs.planted:
                        self._unseen.pop()[1]()
                offset += 1
            if "confirms-unsafe-rows" in bugs.planted:
                done(Error.NONE)
                continue
            self._waiting.append((offset, timeout_ms, group_id, done))
        self._see()
        if self._waiting and self._patience is None:
            self._patience = self.node.clock.after(timeout_ms - now_ms, self._give_up)

    def _refused(self, batch: list[Write], error: KafkaError) -> None:
        if error.code == Error.KAFKA_STORAGE_ERROR:
            self.node.disk_failed(error)
        code = WRITE_ERRORS.get(Error(error.code), Error(error.code))
        is_ahead = any(
            not isinstance(key, (OffsetCommitKey, GroupMetadataKey)) for _, rows, _ in batch for key, _ in rows
        )
        for group_id, _, done in batch:
            done(code)
            self.arm(group_id)
        if is_ahead and not self._has_resigned:
            # Groups of the consumer protocol are what their rows say, and these are not in the log: read it again.
            self.resign()
            self.coordinator.led[self.replica.partition] = LedPartition(self.coordinator, self.replica)

    def _commit(self, key: OffsetCommitKey, value, at: int) -> None:  # type: ignore[no-untyped-def]
        self.shard.offsets.apply(key, value, at)
        tell_commit(self.node, key, value)

    # The high watermark

    def _moved(self, added_bytes: int) -> None:
        if not self.is_loading:
            self._see()
        elif self._read_to >= 0:
            self._begin_if_safe()

    def _see(self) -> None:
        """Let count what is safe, and tell who waits for it."""
        replica = self.replica
        if not replica.is_leader or replica.leader_epoch != self.epoch:
            return  # `follow` is about to say so
        if self._waiting:
            self.coordinator.follow_clock()  # sessions may begin now
        high_watermark = replica.high_watermark
        while self._unseen and self._unseen[0][0] < high_watermark:
            self._unseen.popleft()[1]()
        while self._waiting and self._waiting[0][0] <= high_watermark:
            _, _, group_id, done = self._waiting.popleft()
            done(Error.NONE)
            self.arm(group_id)

    def _give_up(self) -> None:
        """Tell those who have waited too long; what they wrote may still come to count."""
        self.coordinator.follow_clock()
        self._patience = None
        now_ms = self.node.clock.now_ms()
        while self._waiting and self._waiting[0][1] <= now_ms:
            _, _, group_id, done = self._waiting.popleft()
            done(Error.COORDINATOR_NOT_AVAILABLE)
            self.arm(group_id)
        if self._waiting:
            self._patience = self.node.clock.after(self._waiting[0][1] - now_ms, self._give_up)

    # Time

    def arm(self, group_id: str) -> None:
        """Wake up for a group when it wants that; to be called after whatever changed it."""
        group, armed = self.shard.groups.get(group_id), self._timers.get(group_id)
        wake_ms = None if group is None else group.deadline_ms()
        if armed is not None and (wake_ms is None or wake_ms < armed[0]):
            armed[1].cancel()
            del self._timers[group_id]
            armed = None
        if wake_ms is not None and armed is None:
            delay_ms = max(wake_ms - self.node.clock.now_ms(), 0)
            self._timers[group_id] = (wake_ms, self.node.clock.after(delay_ms, partial(self._ring, group_id)))

    def shift(self, by_ms: int) -> None:
        """The clock has been set: what is due is due so much later by it."""
        for group in self.shard.groups.values():
            group.shift(by_ms)
        self._waiting = deque(
            (end, until_ms + by_ms, group_id, done) for end, until_ms, group_id, done in self._waiting
        )
        self._timers = {group_id: (wake_ms + by_ms, timer) for group_id, (wake_ms, timer) in self._timers.items()}

    def _ring(self, group_id: str) -> None:
        self.coordinator.follow_clock()
        self._timers.pop(group_id, None)
        group = self.shard.groups.get(group_id)
        now_ms = self.node.clock.now_ms()
        if isinstance(group, ClassicGroup):
            group.expire(now_ms)
        elif group is not None:
            while (due_ms := group.deadline_ms()) is not None and due_ms <= now_ms:
                settings = self.shard.settings_of(group_id)
                rows = group.expire(now_ms, topics=self.coordinator.topics, config=settings)
                self.change(group, rows, nobody_waits)
                if self.shard.groups.get(group_id) is not group:
                    break
        self.arm(group_id)

    def resign(self) -> None:
        """Coordinate no more: who waits has to look for another."""
        self._has_resigned = True
        self.replica.waiters.pop(self._moved, None)
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._patience is not None:
            self._patience.cancel()
        for *_, done in self._waiting:
            done(Error.NOT_COORDINATOR)
        self._waiting.clear()
        writes, self._writes = self._writes, []
        for *_, done in writes:
            done(Error.NOT_COORDINATOR)
        self.shard.end(self.node.clock.now_ms())


def _bytes(data) -> bytes | None:  # type: ignore[no-untyped-def]
    return None if data is None else bytes(data)


def nobody_waits(error: Error) -> None:
    """What is written because time has passed is tried again when more has passed."""

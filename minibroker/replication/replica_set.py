"""The partitions of one broker: opened, led, followed and let go as the metadata say.

Many of them take their time: where that is allowed, more than a few are opened or removed in shares, while others are
served. Until one is open, its clients hear that it is not here yet, as from a broker of Kafka that has read of a topic
and not caught up with it; `settled` says when all is done. What is to be opened is looked up in the metadata when its
turn comes, so a topic may change or go meanwhile. One that has much to be read, as it was found damaged and its files
have changed, is opened in pieces: a deletion, a stop or a kill gives that up first, and all else leaves it alone. What
is opened takes turns, piece by piece, so a new partition does not wait until a large log is back; and whatever has been
looked up before a piece (settings, metadata) is looked up again behind the last.
A log that is to be removed serves nobody any more, and it has gone before another one gets its name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any

from minibroker.config import log_settings
from minibroker.errors import StorageError
from minibroker.event_kinds import Recover
from minibroker.in_pieces import finish
from minibroker.log.settings import LogSettings
from minibroker.metadata.image import BROKER, Partition, Topic
from minibroker.parts import Parts
from minibroker.replication.leader import LeaderState
from minibroker.replication.replica import Replica
from minibroker.turns import SHARE_US

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from minibroker.clock import Timer
    from minibroker.in_pieces import InPieces
    from minibroker.replication.manager import Replication

    class Upkeep(Protocol):
        """What is to be done from time to time for the logs of the partitions."""

        keeps_all: bool

        def settle(self, settings: LogSettings) -> None: ...

        def left(self, key: tuple[str, int]) -> None: ...

        def forget_high_watermarks(self) -> None: ...


AT_ONCE_MAX = 8  # partitions of one topic
RETRY_MS_MIN, RETRY_MS_MAX = 1000, 60_000  # until what could not be opened is tried again
OPENING_US, REMOVING_US = 500, 1000  # on a disk; in memory less


class Partitions:
    """The replicas of a broker, by topic and partition."""

    def __init__(self, parts: Parts):
        self.parts = parts
        self.replicas: dict[tuple[str, int], Replica] = {}
        self.replication: Replication | None = None  # in a cluster
        self.upkeep: Upkeep  # set before the first is taken
        self.cuts_to_high_watermark = False  # in a lesson followers cut their logs as before KIP-101
        self._topics: dict[bytes, Topic] = {}  # whose partitions have been opened
        self._taken_counts: dict[bytes, int] = {}  # how many partitions each of them had then
        self._to_open: dict[tuple[str, int], Topic] = {}
        self._begun: dict[tuple[str, int], InPieces[None]] = {}  # of those the ones that are being opened in pieces
        self._to_remove: dict[tuple[str, int], None] = {}
        self.unopened: dict[tuple[str, int], Exception] = {}  # what should be open, and why it is not
        self._retry: Timer | None = None
        self._retry_ms = RETRY_MS_MIN
        self._is_at_work = False
        self._failure: Exception | None = None  # of ours, in a share
        # Of the topic asked about last, as of an offset of the metadata.
        self._settings_known: tuple[tuple[str, int], LogSettings] | None = None
        self._shared: list[asyncio.Future[None]] = []  # told at the end of a share
        parts.directory.floors = self._floors

    def set_strays_aside(self) -> None:
        """See to it that nobody takes what a deleted topic left for the log of a new one, and say what is so set aside.

        Nothing of it is ever removed here: it may be all that is left of a topic that the metadata have lost. So it is
        in LogManager.asyncDelete; and there, too, every start names what it finds.
        """
        strays = self.parts.directory.strays()
        claimed = {
            (topic.name, partition.id)
            for topic in self.parts.image.topics.values()
            for partition in topic.partitions
            if self.parts.node_id in partition.replicas
        }
        for topic_name, number in self.parts.directory.found():
            if (topic_name, number) not in claimed:
                name = self.parts.directory.set_aside(topic_name, number, f"{self.parts.chance.getrandbits(128):032x}")
                self.parts.reporter.say(f"{topic_name}-{number} belongs to no topic; it is called {name} now")
        if strays:
            more = f" and {len(strays) - 1} more belong" if strays[1:] else " belongs"
            self.parts.reporter.say(f"{strays[0]}{more} to no topic, and nobody removes what is called so but you")

    def take(self, topic: Topic, numbers: Collection[int] | None = None, *, at_once: bool = True) -> None:
        """Lead, follow or let go of the partitions of a topic, as the metadata say.

        numbers: of the partitions that have changed; by default all. at_once: open what is not open yet now; otherwise
        `begin` has to follow.
        """
        self._topics[topic.id] = topic
        count, known_count = len(topic.partitions), self._taken_counts.get(topic.id, 0)
        self._taken_counts[topic.id] = count
        if numbers is None:
            numbers = range(count)
        elif known_count < count:
            # A partition may have been told of before one with a smaller number was, and is one of the topic's now.
            numbers = sorted({*(number for number in numbers if number < count), *range(known_count, count)})
        for number in numbers:
            if number >= count:
                continue
            partition = topic.partitions[number]
            key = (topic.name, partition.id)
            replica = self.replicas.get(key)
            if self.parts.node_id not in partition.replicas:
                self._let_go(key, at_once=at_once)
            elif replica is not None:
                self._play(replica, partition)
            elif at_once and key not in self._begun:
                finish(self._opening(topic, number))
            else:
                self._to_open[key] = topic

    def _opening(self, topic: Topic, number: int) -> InPieces[None]:
        """Open a partition, and lead or follow; if it cannot be opened, try again later and serve the others.

        One that is damaged is not read again for that until somebody has changed its files.
        In a cluster the controller is told, so that others lead.
        Kafka: takes the whole log directory offline, and with the last one itself.
        """
        key, replication = (topic.name, number), self.replication
        try:
            replica = yield from self._opening_replica(topic, number)
        except (StorageError, MemoryError) as error:
            failure: Exception = error
            if isinstance(error, MemoryError):
                failure = StorageError(f"{topic.name}-{number}: there is no memory to open it")
            if replication is not None and not replication.directories.is_possible:
                raise StorageError(f"{topic.name}-{number}: {failure}") from error
            if str(self.unopened.get(key)) != str(failure):
                self.parts.disk_trouble.note(failure)
            self.unopened[key] = failure
            self._try_later()
        else:
            self.unopened.pop(key, None)
            self._play(replica, self._topics[topic.id].partitions[number])
        if replication is not None:
            topic = self._topics[topic.id]
            replication.directories.tried(topic, topic.partitions[number])

    def _try_later(self) -> None:
        if self._retry is None:
            self._retry = self.parts.clock.after(self._retry_ms, self._try_again)

    def _try_again(self) -> None:
        """Open what could not be opened before."""
        self._retry = None
        before = len(self.unopened)
        for topic in self.parts.image.topics.values():
            for partition in topic.partitions if self.unopened else ():
                if (topic.name, partition.id) in self.unopened:
                    self._to_open[topic.name, partition.id] = topic
        self.begin()
        self._retry_ms = RETRY_MS_MIN if len(self.unopened) < before else min(2 * self._retry_ms, RETRY_MS_MAX)
        self.parts.tell_watchers()  # a coordinator waits for its partitions

    def stop(self) -> None:
        """Try nothing again any more."""
        if self._retry is not None:
            self._retry.cancel()

    def _play(self, replica: Replica, partition: Partition) -> None:
        """Lead or follow."""
        replica.take(
            partition,
            steady_ms=self.parts.clock.steady_ms(),
            lag_ms_max=self.parts.config["replica.lag.time.max.ms"],
            find_broker=self.parts.image.brokers.get,
            truncate=partial(self._cut, (replica.topic, replica.partition)),
            cuts_to_high_watermark=self.cuts_to_high_watermark,
        )
        if self.replication is not None:
            self.replication.role_changed(replica)

    def take_brokers(self, changed: Collection[int]) -> None:
        """Let leaders see who of their followers is alive now: who is waited for depends on it."""
        steady_ms = self.parts.clock.steady_ms()
        for replica in self.replicas.values():
            if isinstance(replica.role, LeaderState) and any(broker in replica.role.followers for broker in changed):
                replica.advance(steady_ms)
                if replica.waiters:
                    replica.tell(0)

    # What takes its time

    @property
    def is_settled(self) -> bool:
        """Whether all partitions are open that the metadata say, and all others have gone."""
        return not self._to_open and not self._to_remove

    async def open_all(self) -> None:
        """Return when all is open that has been taken, and on the disk."""
        self.begin()
        await self.settled()
        if self._failure is not None:
            raise self._failure
        self.parts.directory.sync_names()

    async def settled(self) -> None:
        """Return when all is done that has been begun."""
        while not self.is_settled:
            await self._end_of_share()

    def opening(self, topic: str, numbers: Iterable[int]) -> Coroutine[Any, Any, None] | None:
        """Have these partitions opened before all others, and return what waits for it; None: they are open."""
        keys = {(topic, number): self._to_open[topic, number] for number in numbers if (topic, number) in self._to_open}
        if not keys:
            return None
        self._to_open = keys | self._to_open
        return self._opened(list(keys))

    def opened(self, made: Iterable[tuple[str, Iterable[int]]]) -> Coroutine[Any, Any, None] | None:
        """Return what waits for these partitions of topics, and for no others; None: they are open."""
        if not self._to_open:
            return None
        keys = [(topic, number) for topic, numbers in made for number in numbers if (topic, number) in self._to_open]
        return self._opened(keys) if keys else None

    async def _opened(self, keys: list[tuple[str, int]]) -> None:
        while keys:
            if keys[-1] not in self._to_open:  # the last ones take longest: all others are looked at once
                keys.pop()
                continue
            await self._end_of_share()

    def _end_of_share(self) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._shared.append(done)
        return done

    def begin(self) -> None:
        """Open and remove what is waiting for it: a few now, many in shares."""
        if self._is_at_work:
            return
        if len(self._to_open) + len(self._to_remove) <= AT_ONCE_MAX:
            while not self.is_settled and not self._begun:
                self._do_next()
            if self.is_settled:
                self._tell_shared()
                return
        self._is_at_work = True
        self.parts.shares.add(self._take_share)

    def finish(self) -> None:
        """Do all of it now."""
        while not self.is_settled:
            self._do_next()
        self._tell_shared()

    def finish_removing(self) -> None:
        """Remove now what is to be removed, and open nothing more: the broker stops."""
        self.stop()
        self._open_no_more()
        self.finish()

    def give_up(self) -> None:
        """Do no more of it: the broker has been killed."""
        self.stop()
        self._open_no_more()
        self._to_remove.clear()
        self._tell_shared()

    def _open_no_more(self) -> None:
        self._to_open.clear()
        for key in list(self._begun):
            self._give_up_opening(key)

    def _give_up_opening(self, key: tuple[str, int]) -> bool:
        """Go on no more with opening a partition; return whether that had begun."""
        work = self._begun.pop(key, None)
        if work is not None:
            work.close()
        return work is not None

    def _take_share(self) -> None:
        spent_us = 0
        try:
            while spent_us < SHARE_US and not self.is_settled:
                spent_us += self._do_next()
        except Exception as failure:
            self._failure = failure  # a start must not go on without what could not be opened
            raise
        finally:
            # Whoever writes to a partition must find it after a crash.
            self.sync_names()
            if self.is_settled:
                self._is_at_work = False
                self.parts.tell_watchers()  # a coordinator waits for its partitions
            else:
                self.parts.shares.add(self._take_share)
            self._tell_shared()

    def _do_next(self) -> int:
        """Remove a log, or open one; return how long about that took, in microseconds."""
        try:
            if self._to_remove:
                self._remove(next(iter(self._to_remove)))
                return REMOVING_US
            return self._open_next()
        except StorageError as failure:
            self.parts.disk_failed(failure)
            return OPENING_US

    def _open_next(self) -> int:
        """Open a partition, or a piece of it: then it is the turn of all others before it goes on."""
        key = next(iter(self._to_open))
        work = self._begun.get(key)
        if work is None:
            topic = self._to_open[key]
            is_there = self.parts.image.topics_by_id.get(topic.id) is topic
            if not is_there or key in self.replicas or self.parts.node_id not in topic.partitions[key[1]].replicas:
                del self._to_open[key]
                return 1
            work = self._begun[key] = self._opening(topic, key[1])
        is_over = True
        try:
            spent_us = next(work)
            is_over = False
            self._to_open[key] = self._to_open.pop(key)
        except StopIteration:
            spent_us = OPENING_US
        finally:
            if is_over:
                del self._to_open[key], self._begun[key]
        return spent_us

    def sync_names(self) -> None:
        """Have the names of new directories on the disk; if it refuses, the next time tries it again."""
        try:
            self.parts.directory.sync_names()
        except StorageError as failure:
            self.parts.disk_failed(failure)

    def _tell_shared(self) -> None:
        shared, self._shared = self._shared, []
        for done in shared:
            if not done.done():
                done.set_result(None)

    def _opening_replica(self, topic: Topic, number: int) -> InPieces[Replica]:
        parts, key = self.parts, (topic.name, number)
        if key in self._to_remove:
            self._remove(key)  # a topic of the same name has just been deleted
        offset = parts.image.offset
        log = yield from parts.directory.opening(
            topic.name,
            number,
            self._log_settings(topic.name),
            now_ms=parts.clock.now_ms(),
            topic_id=topic.id,
            is_synced=False,
        )
        if parts.image.offset != offset:  # they may have been altered while it was opened in pieces
            log.settings = self._log_settings(topic.name)
        replica = self.replicas[key] = Replica(
            topic.name,
            topic.id,
            number,
            parts.node_id,
            log,
            high_watermark=parts.directory.high_watermarks.get(key, 0),
            min_in_sync=parts.topic_config(topic.name)["min.insync.replicas"],
            events=parts.events,
        )
        self.upkeep.settle(log.settings)
        recovery = log.recovery
        if recovery.reason:
            parts.reporter.say(f"{log.directory}: {recovery.cut_bytes} bytes cut off after a crash: {recovery.reason}")
        if parts.events.observed and not parts.directory.was_clean and log.log_end_offset:
            event = Recover(
                **replica.place, end_offset=log.log_end_offset, cut_bytes=recovery.cut_bytes, why=recovery.reason
            )
            parts.events.emit(event)
        return replica

    def delete_topic(self, topic_id: bytes, *, at_once: bool = True) -> None:
        topic = self._topics.pop(topic_id, None)
        self._taken_counts.pop(topic_id, None)
        for partition in topic.partitions if topic is not None else ():
            key = (topic.name, partition.id)  # type: ignore[union-attr]
            self._to_open.pop(key, None)
            self._let_go(key, at_once=at_once)

    def _let_go(self, key: tuple[str, int], *, at_once: bool) -> None:
        """Serve a partition no more, and remove what there is of it, also if it could not be opened."""
        replica = self.replicas.pop(key, None)
        was_unopened = self._give_up_opening(key) | (self.unopened.pop(key, None) is not None)
        if replica is not None:
            replica.leave()
            self.upkeep.left(key)
            if self.replication is not None:
                self.replication.remove(replica)
        elif not was_unopened or not self.parts.directory.is_there(*key):
            return
        self._to_remove[key] = None
        if at_once:
            self._remove(key)

    def _remove(self, key: tuple[str, int]) -> None:
        del self._to_remove[key]
        self.parts.directory.purge(self.parts.directory.delete(*key, f"{self.parts.chance.getrandbits(128):032x}"))

    def take_configs(self, resource_type: int, name: str) -> None:
        """Have the settings of a topic take effect, or those of brokers, which all topics fall back on."""
        if self.replication is not None:
            self.replication.take_throttles()
        settings_by_topic = {}
        for replica in list(self.replicas.values()) if resource_type == BROKER else self._replicas_of(name):
            if replica.topic not in settings_by_topic:
                config = self.parts.topic_config(replica.topic)
                settings_by_topic[replica.topic] = (
                    self._new_log_settings(replica.topic),
                    config["min.insync.replicas"],
                )
            replica.log.settings, min_in_sync = settings_by_topic[replica.topic]
            replica.set_min_in_sync(min_in_sync, self.parts.clock.steady_ms())
            self.upkeep.settle(replica.log.settings)

    def _replicas_of(self, name: str) -> Iterator[Replica]:
        topic = self.parts.image.topics.get(name)
        for partition in topic.partitions if topic is not None else ():
            replica = self.replicas.get((name, partition.id))
            if replica is not None:
                yield replica

    def _cut(self, key: tuple[str, int], offset: int, why: str) -> None:
        """Cut the log of a partition back to an offset."""
        if offset < self.replicas[key].high_watermark:
            # An unclean election: what was committed is so no longer, and no crash may bring the claim back.
            self.parts.directory.lower_high_watermark(*key, offset)
            self.upkeep.forget_high_watermarks()
        self.parts.directory.truncate_to(*key, offset)

    def _floors(self) -> dict[tuple[str, int], int]:
        """Return up to where logs that follow a leader are certain: there may be more to cut.

        That is the high watermark, unless an answer says that even what was committed goes: after an unclean election.
        """
        floors = {key: replica.high_watermark for key, replica in self.replicas.items() if not replica.is_leader}
        if self.replication is not None:
            floors |= self.replication.fetchers.cuts()
        return floors

    def _log_settings(self, topic: str) -> LogSettings:
        """Return what the logs of a topic are to do: once for its partitions, opened one after the other."""
        place = (topic, self.parts.image.offset)
        if self._settings_known is None or self._settings_known[0] != place:
            self._settings_known = (place, self._new_log_settings(topic))
        return self._settings_known[1]

    def _new_log_settings(self, topic: str) -> LogSettings:
        config = self.parts.topic_config(topic)
        return log_settings(config, self.parts.emulated.message_format(config))

"""A follower's side of replication: fetch from each leader, for all partitions that it leads.

One loop for each leader, one request at a time, in a session that both sides know (follower_sessions.py). A request
names what has moved; when a partition comes or its leader changes meanwhile, the waiting request is given up for one
that says so, so that nobody waits for a fetch that is about something else.

What must hold: what an answer does to a log is decided by replication/follower.py alone; here is only when to ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

from minibroker.clock import Pause
from minibroker.errors import Error, KafkaError, StorageError
from minibroker.event_kinds import Fetch
from minibroker.log.reading import EARLIEST, LATEST
from minibroker.parts import Parts
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest
from minibroker.replication.follower import (
    FENCED,
    NO_LEADER,
    OUT_OF_RANGE,
    RETRY,
    UNKNOWN_EPOCH,
    FetchPosition,
    FollowerState,
)
from minibroker.replication.network import Network, NetworkError
from minibroker.replication.replica import Replica
from minibroker.reporter import TOLD_COUNTS, Unexpected

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.replication.throttles import Throttle

Key = tuple[bytes, int]  # topic id and partition
Answer = FetchResponse.FetchableTopicResponse.PartitionData
Topic = FetchRequest.FetchTopic
Forgotten = FetchRequest.ForgottenTopic
EndsTopic = ListOffsetsRequest.ListOffsetsTopic
FETCH_VERSION, LIST_OFFSETS_VERSION = 17, 9
EPOCH_MAX = 0x7FFFFFFF
NO_SESSION = 0
AT_ONCE_MAX = 50  # partitions of an answer: each is appended to, and on a disk at first gets a file


class ReplicaFetchers:
    """Every leader that one broker follows."""

    def __init__(self, parts: Parts, network: Network):
        self.parts = parts
        self.network = network
        self.fetchers: dict[int, Fetcher] = {}
        self._leaders: dict[Key, int] = {}  # of what is fetched
        self.throttle: Throttle | None = None  # on what is fetched
        self._has_begun = self._has_stopped = False

    def start(self) -> None:
        """Fetch from now on: all partitions that have come so far with the same requests."""
        self._has_begun = True
        for fetcher in self.fetchers.values():
            fetcher.go()

    def role_changed(self, replica: Replica) -> None:
        """Fetch a partition from its leader, or no longer, as its role says."""
        if self._has_stopped:
            return  # news that came while the broker stops; it must not begin again
        role, key = replica.role, (replica.topic_id, replica.partition)
        leader = role.leader_id if isinstance(role, FollowerState) else NO_LEADER
        if self._leaders.get(key) != leader:
            self.remove(replica)
        if leader != NO_LEADER:
            self._leaders[key] = leader
            if leader not in self.fetchers:
                self.fetchers[leader] = Fetcher(self.parts, self.network, leader, self.throttle)
            if self.fetchers[leader].add(key, replica) and self._has_begun:
                self.fetchers[leader].go()

    def remove(self, replica: Replica) -> None:
        key = (replica.topic_id, replica.partition)
        leader = self._leaders.pop(key, None)
        if leader is not None:
            self.fetchers[leader].remove(key)

    def take_throttle(self, throttle: Throttle | None) -> None:
        """Fetch no faster than this from now on."""
        if throttle is not None or self.throttle is not None:
            self.throttle = throttle
            for fetcher in self.fetchers.values():
                fetcher.throttle = throttle
                fetcher.take_up()

    def cuts(self) -> Iterator[tuple[tuple[str, int], int]]:
        """Return the logs that are about to be cut, and where: after a failover one answer may be about many."""
        for fetcher in self.fetchers.values():
            yield from fetcher.cuts()

    def stop(self) -> None:
        self._has_stopped = True
        for fetcher in self.fetchers.values():
            fetcher.stop()


class Fetcher:
    """What is fetched from one leader."""

    def __init__(self, parts: Parts, network: Network, leader_id: int, throttle: Throttle | None = None):
        self.parts = parts
        self.throttle = throttle
        self.network = network
        self.leader_id = leader_id
        self.replicas: dict[Key, Replica] = {}
        self._roles: dict[Key, FollowerState] = {}  # in which each was asked for last
        self._moved: dict[Key, None] = {}  # to be named in the next request
        self._taken: FetchResponse | None = None  # the answer whose partitions are being taken
        self._positions: dict[Key, FetchPosition] = {}  # what the leader was told last, in this session
        self._forgotten: dict[Key, None] = {}
        self._held_back: dict[Key, None] = {}  # not asked for now: what is throttled has had enough
        self._session_id = NO_SESSION
        self._session_epoch = 0
        self._task: asyncio.Task[None] | None = None
        self._pause = Pause(parts.clock)  # before the next try
        self._call: asyncio.Task[FetchResponse] | None = None
        self._is_given_up = self._has_stopped = False
        self._hurries = False  # the next request is to be answered at once, and not when there is something new
        self._is_hurried = False  # so was the last one
        self._others: dict[asyncio.Task[None], None] = {}  # questions beside the fetches
        self._troubles: dict[Key, int] = {}  # how often each could not be fetched, one time after the other
        self._unexpected = Unexpected(parts.reporter, f"fetch {self}")

    def add(self, key: Key, replica: Replica) -> bool:
        """Fetch a partition from here in its role; return whether that is new."""
        role = replica.role
        assert isinstance(role, FollowerState)
        if self.replicas.get(key) is replica and self._roles.get(key) is role:
            return False
        self.replicas[key], self._roles[key] = replica, role
        self._moved[key] = None
        self._forgotten.pop(key, None)
        return True

    def remove(self, key: Key) -> None:
        self.replicas.pop(key, None)
        self._roles.pop(key, None)
        self._moved.pop(key, None)
        self._troubles.pop(key, None)
        self._held_back.pop(key, None)
        if self._positions.pop(key, None) is not None:
            self._forgotten[key] = None

    def stop(self) -> None:
        self._has_stopped = True  # a cancel may meet that of a call that is given up, and be taken for it
        for task in (self._task, self._call, *self._others):
            if task is not None:
                task.cancel()
        self._others.clear()

    # The loop

    def go(self) -> None:
        """Ask now: there is something that the waiting request does not know of."""
        if self._has_stopped:
            return
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"fetch {self}")
        elif self._call is not None and not self._call.done():
            if self._is_hurried:
                return  # its answer is on the way
            self._is_given_up = True
            # Without a session the next request names all partitions: so it gets one before more of them come.
            self._hurries = self._session_id == NO_SESSION
            self._call.cancel()
        else:
            self._pause.wake()

    def __str__(self) -> str:
        return f"{self.parts.node_id}<-{self.leader_id}"

    async def _run(self) -> None:
        refused = 0
        while self.replicas and not self._has_stopped:
            await self.parts.clock.sleep(0)  # more may come at the same time
            try:
                answer = await self._ask(self._request())
                if answer is None:
                    continue
                if answer.error_code == Error.NONE:
                    await self._take(answer)
                    refused = 0
                    continue
            except Exception as error:
                if not isinstance(error, NetworkError):  # ours, and yet replication from this leader goes on
                    self._unexpected.tell(error)
                self._reset()
                await self._pause.sleep(self.parts.config["replica.fetch.backoff.ms"])
                continue
            refused += 1
            self._reset()
            if refused > 1:  # a new session was refused too: somebody else has one in our name, or there is no room
                await self._pause.sleep(self.parts.config["replica.fetch.backoff.ms"])
        self._reset()

    async def _ask(self, request: FetchRequest) -> FetchResponse | None:
        """Return the answer, None if the request has been given up."""
        call = self.network.call(
            self.parts.node_id,
            self.leader_id,
            request,
            FETCH_VERSION,
            timeout_ms=self.parts.config["replica.socket.timeout.ms"],
        )
        self._call = asyncio.get_running_loop().create_task(call, name=f"call {self}")
        try:
            return await self._call
        except asyncio.CancelledError:
            if not self._is_given_up:
                raise
            return None
        finally:
            self._call = None
            self._is_given_up = False

    def _reset(self) -> None:
        """Begin a new session with the next request."""
        self._session_id, self._session_epoch = NO_SESSION, 0
        self._positions.clear()
        self._forgotten.clear()
        self._held_back.clear()
        self._moved = dict.fromkeys(self.replicas)

    def take_up(self) -> None:
        """Ask again for what has been held back."""
        self._moved.update(self._held_back)
        for key in self._held_back:
            self._forgotten.pop(key, None)
        self._held_back.clear()

    def _hold_back(self, throttle: Throttle) -> None:
        """Ask for nothing that is throttled and not in sync, once there has been enough of it."""
        self.take_up()
        if not throttle.is_exceeded:
            return
        for key in [*self._moved, *self._positions]:
            replica = self.replicas[key]
            if throttle.covers(replica.topic, replica.partition) and not self._is_in_sync(key):
                self._moved.pop(key, None)
                self._held_back[key] = None
                if self._positions.pop(key, None) is not None:
                    self._forgotten[key] = None  # or the leader would send of it what comes

    def _is_in_sync(self, key: Key) -> bool:
        topic = self.parts.image.topics_by_id.get(key[0])
        return topic is None or self.parts.node_id in topic.partitions[key[1]].isr

    def _request(self) -> FetchRequest:
        config = self.parts.config
        self._is_hurried, self._hurries = self._hurries, False
        if self._session_id == NO_SESSION:
            self._reset()
        else:
            self._session_epoch = 1 if self._session_epoch == EPOCH_MAX else self._session_epoch + 1
        if self.throttle is not None:
            self._hold_back(self.throttle)
        topics: dict[bytes, list[Topic.FetchPartition]] = {}
        for key in self._moved:
            role = self.replicas[key].role
            position = role.next_fetch() if isinstance(role, FollowerState) else None
            if position is not None:
                self._positions[key] = position
                topics.setdefault(key[0], []).append(
                    Topic.FetchPartition(
                        partition=key[1],
                        current_leader_epoch=position.leader_epoch,
                        fetch_offset=position.offset,
                        last_fetched_epoch=position.last_fetched_epoch,
                        log_start_offset=position.log_start_offset,
                        partition_max_bytes=config["replica.fetch.max.bytes"],
                    )
                )
        self._moved.clear()
        forgotten: dict[bytes, list[int]] = {}
        for topic_id, partition in self._forgotten:
            forgotten.setdefault(topic_id, []).append(partition)
        self._forgotten.clear()
        return FetchRequest(
            replica_state=FetchRequest.ReplicaState(
                replica_id=self.parts.node_id, replica_epoch=self.parts.metadata.broker_epoch
            ),
            max_wait_ms=0 if self._is_hurried else config["replica.fetch.wait.max.ms"],
            min_bytes=config["replica.fetch.min.bytes"],
            max_bytes=config["replica.fetch.response.max.bytes"],
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=[Topic(topic_id=topic_id, partitions=each) for topic_id, each in topics.items()],
            forgotten_topics_data=[
                Forgotten(topic_id=topic_id, partitions=each) for topic_id, each in forgotten.items()
            ],
        )

    async def _take(self, answer: FetchResponse) -> None:
        """Do what an answer says, and of many partitions a few at a time, with others in between."""
        self._session_id, self._taken, count = answer.session_id, answer, 0
        for topic in answer.responses:
            topic_id = bytes(topic.topic_id)
            for each in topic.partitions:
                self._take_partition((topic_id, each.partition_index), each)
                count += 1
                if count % AT_ONCE_MAX == 0:
                    await self.parts.shares.turn()
        self._taken = None

    def cuts(self) -> Iterator[tuple[tuple[str, int], int]]:
        """Return the logs that part from their leader's by the answer that is being taken, and where they do."""
        for topic in () if self._taken is None else self._taken.responses:
            for each in topic.partitions:
                diverging = each.diverging_epoch
                if diverging.epoch != UNKNOWN_EPOCH:
                    replica = self.replicas.get((bytes(topic.topic_id), each.partition_index))
                    if replica is not None and isinstance(replica.role, FollowerState):
                        key = (replica.topic, replica.partition)
                        yield key, replica.role.parting_offset(diverging.epoch, diverging.end_offset)

    def _take_partition(self, key: Key, answer: Answer) -> None:
        replica, position = self.replicas.get(key), self._positions.get(key)
        if replica is None or position is None:
            return
        role, parts = replica.role, self.parts
        if not isinstance(role, FollowerState) or self._roles.get(key) is not role:
            return  # it will be asked for in another epoch
        if answer.error_code != Error.NONE:
            del self._positions[key]
            self._forgotten[key] = None  # the leader says so again until it hears that this has arrived
        if "fetch" in parts.events.wanted:
            place, size_bytes = (parts.node_id, replica.topic, replica.partition), len(answer.records or b"")
            parts.events.emit(Fetch(*place, self.leader_id, position.offset, size_bytes, answer.high_watermark))
        if self.throttle is not None and answer.records and self.throttle.covers(replica.topic, replica.partition):
            self.throttle.record(len(answer.records))
        try:
            outcome = role.on_fetched(position, answer, parts.clock.now_ms())
        except StorageError as failure:
            self._disk_failed(key, replica, failure)
            return
        except Exception as error:  # ours: this partition is tried again, and no other one suffers from it
            self._unexpected.tell(error)
            role.trouble, outcome = repr(error), RETRY
        if outcome == RETRY:
            if self._positions.pop(key, None) is not None:
                self._forgotten[key] = None  # or the leader sends at once again what cannot be appended
            self._tell_trouble(key, replica, role)
            self._beside(self._try_later(key, role))
            return
        self._troubles.pop(key, None)
        if outcome == OUT_OF_RANGE:
            self._beside(self._find_ends(key, replica, role))
        elif outcome != FENCED and role.next_fetch() != position:
            self._moved[key] = None

    # What goes wrong

    def _disk_failed(self, key: Key, replica: Replica, failure: StorageError) -> None:
        self.remove(key)
        self.parts.disk_failed(failure)

    def _tell_trouble(self, key: Key, replica: Replica, role: FollowerState) -> None:
        """Say that a partition does not get on, if that lasts, and more and more rarely."""
        count = self._troubles[key] = self._troubles.get(key, 0) + 1
        if count in TOLD_COUNTS:
            self.parts.reporter.say(
                f"broker {self.parts.node_id} cannot follow broker {self.leader_id} in {replica.topic}-"
                f"{replica.partition}, it has tried {count} times: {role.trouble}"
            )

    # Beside the fetches

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._others[task] = None
        task.add_done_callback(lambda done: self._others.pop(done, None))

    def _again(self, key: Key, role: FollowerState) -> None:
        if self._roles.get(key) is role:
            self._moved[key] = None
            self.go()

    async def _try_later(self, key: Key, role: FollowerState) -> None:
        await self.parts.clock.sleep(self.parts.config["replica.fetch.backoff.ms"])
        self._again(key, role)

    async def _find_ends(self, key: Key, replica: Replica, role: FollowerState) -> None:
        """Ask where the leader's log begins and ends, until it says so or somebody else leads."""
        while self._roles.get(key) is role:
            try:
                end_offset = await self._ask_offset(replica, role, LATEST)
                start_offset = await self._ask_offset(replica, role, EARLIEST)
            except KafkaError:
                await self.parts.clock.sleep(self.parts.config["replica.fetch.backoff.ms"])
                continue
            except Exception as error:  # ours
                self._unexpected.tell(error)
                await self.parts.clock.sleep(self.parts.config["replica.fetch.backoff.ms"])
                continue
            if self._roles.get(key) is role:
                try:
                    role.on_leader_ends(start_offset, end_offset, self.parts.clock.now_ms())
                except StorageError as failure:
                    self._disk_failed(key, replica, failure)
                    return
                self._again(key, role)
            return

    async def _ask_offset(self, replica: Replica, role: FollowerState, timestamp: int) -> int:
        partition = EndsTopic.ListOffsetsPartition(
            partition_index=replica.partition, current_leader_epoch=role.leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self.parts.node_id, topics=[EndsTopic(name=replica.topic, partitions=[partition])]
        )
        answer = await self.network.call(self.parts.node_id, self.leader_id, request, LIST_OFFSETS_VERSION)
        found = answer.topics[0].partitions[0]
        if found.error_code != Error.NONE:
            raise KafkaError(Error(found.error_code))
        offset: int = found.offset
        return offset

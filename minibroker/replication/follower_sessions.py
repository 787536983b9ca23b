"""Fetch sessions of followers: what a broker answers to the fetches of those that follow it.

One session for each follower, with all partitions that it follows here. A request names only partitions in which the
follower has moved; an answer holds only those with news. So what is asked and answered grows with what happens, not
with the number of partitions. Where there is nothing new the answer waits, and the next append wakes it: followers do
not poll. A high watermark that has risen waits for the next answer (Kafka does so too), unless consumers read from
followers here (replica.selector.class) and would have to wait for it.

What must hold: a request counts once: a session accepts only the epoch that is due. What was sent and not confirmed by
a later request is sent again. A follower is as far as it said itself, in this session and this leader epoch.
Not here: what one partition answers (leader.py), the other side (fetcher.py).
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping

from minibroker.clock import Pause
from minibroker.errors import Error, KafkaError
from minibroker.log import reading
from minibroker.parts import Parts
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from minibroker.replication.follower import FetchPosition
from minibroker.replication.isr_updates import IsrUpdates
from minibroker.replication.leader import FollowerRead
from minibroker.replication.replica import Replica

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from minibroker.replication.throttles import Throttle

Key = tuple[bytes, int]  # topic id and partition
Topic = FetchResponse.FetchableTopicResponse
Answer = Topic.PartitionData
EndsTopic = ListOffsetsResponse.ListOffsetsTopicResponse
Ends = EndsTopic.ListOffsetsPartitionResponse

FIRST_EPOCH: Final = 0
ANSWERED_MAX: Final = 200  # partitions with records in one answer: both sides have others to serve
EPOCH_MAX: Final = 0x7FFFFFFF


class SessionPartition:
    """One partition of a session."""

    __slots__ = ("bytes_max", "high_watermark", "key", "leader", "log_start_offset", "position", "replica", "session")

    def __init__(self, session: FollowerSession, key: Key, replica: Replica, position: FetchPosition, bytes_max: int):
        self.session = session
        self.key = key
        self.replica = replica
        self.leader = replica.as_leader()  # in whose epoch the follower fetches
        self.position = position  # that the follower named last
        self.bytes_max = bytes_max
        self.high_watermark = -1  # as last told
        self.log_start_offset = -1

    def changed(self, added_bytes: int) -> None:
        """Hear that the partition has moved, that this broker leads no longer, or that its disk has failed."""
        replica, log = self.replica, self.replica.log
        is_over = replica.role is not self.leader or log.offline is not None
        if self.session.follower_id not in self.leader.in_sync:
            self.session.outside[self.key] = None
        if is_over or log.log_end_offset > self.position.offset or log.log_start_offset != self.log_start_offset:
            self.session.has_news(self)
        else:
            self.session.stale[self.key] = None
            if self.session.tells_high_watermarks:
                self.session.pause.wake()

    def close(self) -> None:
        self.replica.waiters.pop(self.changed, None)


class FollowerSession:
    """The session of one follower."""

    def __init__(self, follower_id: int, session_id: int, pause: Pause, *, tells_high_watermarks: bool):
        self.follower_id = follower_id
        self.session_id = session_id
        self.tells_high_watermarks = tells_high_watermarks
        self.epoch = FIRST_EPOCH  # of the last request
        self.fetched_ms = 0  # when it came, by the steady clock
        self.partitions: dict[Key, SessionPartition] = {}
        self.news: dict[Key, None] = {}  # partitions that may have records, or an error
        self.outside: dict[Key, None] = {}  # where the follower is not in sync, and may come to be with each fetch
        self.stale: dict[Key, None] = {}  # partitions of which only the high watermark is news
        self.sent: dict[Key, None] = {}  # with the last answer
        self.refused: dict[Key, KafkaError] = {}  # until the follower forgets them or names them again
        self.pause = pause  # while an answer waits: until there may be news, or another request takes its place

    def has_news(self, partition: SessionPartition) -> None:
        if partition.key not in self.news:
            self.news[partition.key] = None
            progress = partition.leader.followers.get(self.follower_id)
            if (
                partition.key not in self.sent
                and progress is not None
                and progress.broker_epoch is not None
                and progress.end_offset >= progress.leader_end_offset
            ):
                # It had everything when it last asked for anything, though it did not name this partition then.
                progress.note(
                    progress.end_offset,
                    progress.log_start_offset,
                    progress.end_offset,
                    max(self.fetched_ms, progress.fetched_ms),
                    progress.broker_epoch,
                )
        self.pause.wake()

    def drop(self, key: Key) -> None:
        partition = self.partitions.pop(key, None)
        if partition is not None:
            partition.close()
            self.news.pop(key, None)
            self.stale.pop(key, None)
            self.outside.pop(key, None)

    def close(self) -> None:
        for key in list(self.partitions):
            self.drop(key)
        self.pause.wake()


class FollowerSessions:
    """Every follower of one broker."""

    def __init__(self, parts: Parts, replicas: Mapping[tuple[str, int], Replica], isr: IsrUpdates):
        self.parts = parts
        self.replicas = replicas
        self.isr = isr
        self.sessions: dict[int, FollowerSession] = {}  # by the follower's id
        self.throttle: Throttle | None = None  # on what followers get here

    def stop(self) -> None:
        for session in self.sessions.values():
            session.close()
        self.sessions.clear()

    def remove(self, replica: Replica) -> None:
        """Take a partition that is gone from here out of every session."""
        for session in self.sessions.values():
            session.drop((replica.topic_id, replica.partition))

    # Fetch

    def fetch(self, request: FetchRequest) -> FetchResponse | Coroutine[None, None, FetchResponse]:
        """Answer a follower now, or when there is something to tell."""
        state = request.replica_state
        session = self.sessions.get(state.replica_id)
        if request.session_epoch == FIRST_EPOCH:
            if session is not None:
                session.close()
            session = self.sessions[state.replica_id] = FollowerSession(
                state.replica_id,
                self.parts.chance.randrange(1, 1 << 31),
                Pause(self.parts.clock),
                tells_high_watermarks=self.parts.sends_to_racks,
            )
        elif session is None or session.session_id != request.session_id:
            return FetchResponse(error_code=Error.FETCH_SESSION_ID_NOT_FOUND, responses=[])
        elif request.session_epoch != (1 if session.epoch == EPOCH_MAX else session.epoch + 1):
            return FetchResponse(error_code=Error.INVALID_FETCH_SESSION_EPOCH, responses=[])
        session.epoch = request.session_epoch
        session.fetched_ms = self.parts.clock.steady_ms()
        fetch = FollowerFetch(self, session, request)
        fetch.take()
        if fetch.is_due or request.max_wait_ms <= 0:
            return fetch.response()
        return self._wait(fetch, request)

    async def _wait(self, fetch: FollowerFetch, request: FetchRequest) -> FetchResponse:
        session = fetch.session
        clock = self.parts.clock
        deadline_ms = clock.steady_ms() + request.max_wait_ms
        while True:  # there may be news before this coroutine is run for the first time
            if session.epoch != request.session_epoch or self.sessions.get(session.follower_id) is not session:
                return FetchResponse(responses=[])  # nobody waits for this answer any more
            fetch.read_news()
            left_ms = deadline_ms - clock.steady_ms()
            if fetch.is_due or left_ms <= 0 or (session.tells_high_watermarks and session.stale):
                return fetch.response()
            await session.pause.sleep(left_ms)

    # Where a log begins and ends

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        """Tell a follower that is out of range the ends of the leader's log."""
        topics = []
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                answer = Ends(partition_index=wanted.partition_index, error_code=Error.NONE)
                replica = self.replicas.get((topic.name, wanted.partition_index))
                try:
                    if replica is None:
                        raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
                    replica.check_leader(wanted.current_leader_epoch)
                    found = reading.find_offset(replica.log, wanted.timestamp, limit_offset=replica.log.log_end_offset)
                    if found is not None:
                        answer.offset = found.offset
                except KafkaError as error:
                    self.parts.say_if_damaged(error)
                    answer.error_code = error.code
                answers.append(answer)
            topics.append(EndsTopic(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)


class FollowerFetch:
    """One request of a follower on its way to an answer."""

    def __init__(self, sessions: FollowerSessions, session: FollowerSession, request: FetchRequest):
        self.parts = sessions.parts
        self.sessions = sessions
        self.session = session
        self.request = request
        self.is_due = False
        self.left_bytes = request.max_bytes
        self._bytes_min = min(request.min_bytes, request.max_bytes)  # of records, before an answer leaves early
        self._answers: dict[Key, Answer] = {}
        self._named: dict[Key, None] = {}  # by the request
        self._noted: dict[Key, FollowerRead] = {}  # what is to be read in this turn: the answer, but for its records

    def take(self) -> None:
        """Note what the follower says, and read what there is for it."""
        session, request = self.session, self.request
        for forgotten in request.forgotten_topics_data:
            for number in forgotten.partitions:
                session.drop((bytes(forgotten.topic_id), number))
                session.refused.pop((bytes(forgotten.topic_id), number), None)
        session.news.update(session.sent)  # whatever of it has not arrived
        session.sent = {}
        for topic in request.topics:
            topic_id = bytes(topic.topic_id)
            for asked in topic.partitions:
                session.refused.pop((topic_id, asked.partition), None)
                self._take_partition((topic_id, asked.partition), asked)
        for key, error in list(session.refused.items()):
            if key not in self._answers:
                self._refuse(key, error)  # it has not heard of that, or it would have said so
        for key in list(session.outside):
            self._look_again(key)
        self.read_news()

    def _take_partition(self, key: Key, asked: FetchRequest.FetchTopic.FetchPartition) -> None:
        session, parts = self.session, self.parts
        position = FetchPosition(
            asked.fetch_offset, asked.last_fetched_epoch, asked.log_start_offset, asked.current_leader_epoch
        )
        try:
            name = parts.topic_name(key[0])
            replica = None if name is None else self.sessions.replicas.get((name, key[1]))
            if replica is None:
                raise KafkaError(Error.UNKNOWN_TOPIC_ID if name is None else Error.NOT_LEADER_OR_FOLLOWER)
            replica.check_leader()
            partition = session.partitions.get(key)
            if partition is None or partition.replica is not replica or partition.leader is not replica.role:
                session.drop(key)
                partition = SessionPartition(session, key, replica, position, asked.partition_max_bytes)
                session.partitions[key] = partition
            partition.position = position
            replica.waiters[partition.changed] = None
            self._named[key] = None
            if session.follower_id not in partition.leader.in_sync:
                session.outside[key] = None
            self._note(partition)
        except KafkaError as error:
            self._refuse(key, error)

    def _look_again(self, key: Key) -> None:
        """Let a follower that is not in sync say again how far it is: who may join depends on the controller too."""
        partition = self.session.partitions[key]
        if self.session.follower_id in partition.leader.in_sync:
            del self.session.outside[key]
        elif key not in self._named:
            try:
                self._note(partition)
            except KafkaError as error:
                self._refuse(key, error)

    def read_news(self) -> None:
        """Read partitions that have got something since; they come in turns, for an answer has its limit.

        Who has got something comes last with the next request, so that a batch that is larger than what a partition may
        have is the first to be read some time, and then its size does not matter.
        """
        session, throttle = self.session, self.sessions.throttle
        for key in list(session.news):
            if self._is_full:
                break
            partition = session.partitions.get(key)
            if throttle is not None and partition is not None and self._is_held_back(partition, throttle):
                continue  # it is read with one of the next requests
            if partition is None or (key in self._answers and not self._give_back(key)):
                session.news.pop(key, None)
                continue
            try:
                self._read(
                    partition, self._noted.pop(key) if key in self._noted else self._look(partition, counts=False)
                )
            except KafkaError as error:
                self._refuse(key, error)
        self.is_due = self.is_due or self._is_full  # more than there is cannot come

    def _is_held_back(self, partition: SessionPartition, throttle: Throttle) -> bool:
        """Whether the follower gets nothing of a partition now: it is not in sync, and such have had enough."""
        replica = partition.replica
        return (
            throttle.covers(replica.topic, replica.partition)
            and self.session.follower_id not in partition.leader.in_sync
            and throttle.is_exceeded
        )

    @property
    def _is_full(self) -> bool:
        return self.left_bytes <= 0 or len(self._answers) >= ANSWERED_MAX

    def _give_back(self, key: Key) -> bool:
        """Let a partition be read again that has got more while the answer waits; return whether it had records."""
        records = self._answers[key].records
        if not records:
            return False
        del self._answers[key]
        self.left_bytes += len(records)
        return True

    @property
    def _has_records(self) -> bool:
        return self.left_bytes < self.request.max_bytes

    def _look(self, partition: SessionPartition, *, counts: bool) -> FollowerRead:
        session, replica = self.session, partition.replica
        if replica.role is not partition.leader:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER, "another epoch has begun")
        read = partition.leader.note_fetch(
            session.follower_id,
            partition.position,
            steady_ms=session.fetched_ms,
            broker_epoch=self.request.replica_state.replica_epoch,
            counts=counts,
        )
        if read.proposal is not None:
            self.sessions.isr.propose(replica, read.proposal)
        return read

    def _note(self, partition: SessionPartition) -> None:
        """Take the follower's word for how far it is; what there is for it is read when it is its turn."""
        read = self._look(partition, counts=True)
        if read.diverging is None and partition.replica.log.log_end_offset > partition.position.offset:
            self._noted[partition.key] = read
            self.session.news.setdefault(partition.key)
        else:
            self._take(partition, read)

    def _read(self, partition: SessionPartition, read: FollowerRead) -> None:
        if read.diverging is None:
            bytes_max = min(partition.bytes_max, self.left_bytes)
            log, offset = partition.replica.log, partition.position.offset
            read.fill(log, offset, bytes_max, whole_batch=not self._has_records)
        self._take(partition, read)

    def _take(self, partition: SessionPartition, read: FollowerRead) -> None:
        """Put what was read into the answer, if it is news."""
        session, found = self.session, read.found
        if found is None and read.diverging is None:
            if partition.replica.log.log_end_offset > partition.position.offset:
                session.news.setdefault(partition.key)  # there was no room for it; it keeps its place
            else:
                session.news.pop(partition.key, None)
            if read.high_watermark != partition.high_watermark or read.log_start_offset != partition.log_start_offset:
                session.stale[partition.key] = None
                self.is_due = self.is_due or read.log_start_offset != partition.log_start_offset
            return
        answer = self._answer(partition, read.high_watermark, read.log_start_offset, read.last_stable_offset)
        if read.diverging is not None:
            answer.diverging_epoch = Answer.EpochEndOffset(
                epoch=read.diverging.epoch, end_offset=read.diverging.end_offset
            )
            self.is_due = True
        elif found is not None:
            answer.records = found.view()
            self.left_bytes -= found.size_bytes
            self.is_due = self.is_due or self.request.max_bytes - self.left_bytes >= self._bytes_min
        session.news.pop(partition.key, None)
        session.sent[partition.key] = None

    def _answer(
        self, partition: SessionPartition, high_watermark: int, log_start_offset: int, last_stable_offset: int
    ) -> Answer:
        partition.high_watermark, partition.log_start_offset = high_watermark, log_start_offset
        self.session.stale.pop(partition.key, None)
        answer = self._answers[partition.key] = Answer(
            partition_index=partition.key[1],
            error_code=Error.NONE,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
            aborted_transactions=None,
            records=None,
        )
        return answer

    def _refuse(self, key: Key, error: KafkaError) -> None:
        """Answer an error; the follower asks for the partition again when it knows better."""
        self.parts.say_if_damaged(error)
        self.session.drop(key)
        self.session.refused[key] = error
        self._answers[key] = Answer(
            partition_index=key[1], error_code=error.code, high_watermark=-1, aborted_transactions=None, records=None
        )
        self.is_due = True

    def response(self) -> FetchResponse:
        session = self.session
        for key in list(session.stale):
            partition = session.partitions.get(key)
            if partition is None:
                del session.stale[key]
            elif key not in self._answers:
                replica = partition.replica
                high_watermark = replica.high_watermark
                self._answer(
                    partition,
                    high_watermark,
                    replica.log.log_start_offset,
                    replica.log.last_stable_offset(high_watermark),
                )
        topics: dict[bytes, list[Answer]] = {}
        throttle = self.sessions.throttle
        for key, answer in self._answers.items():
            topics.setdefault(key[0], []).append(answer)
            if throttle is not None and answer.records and key in session.partitions:
                replica = session.partitions[key].replica
                if throttle.covers(replica.topic, replica.partition):
                    throttle.record(len(answer.records))
        return FetchResponse(
            session_id=session.session_id,
            responses=[Topic(topic_id=topic_id, partitions=answers) for topic_id, answers in topics.items()],
        )

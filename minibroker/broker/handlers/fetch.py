"""Fetch: batches as they lie in the log, from where the client asks.

Partitions are read in the order of the request, or of the session. If there is less than the client wants at least, the
answer waits until there is, or until the time is over. What is sent are views of the log's files; only clients of an
age that does not know the stored format get a copy, converted.
"""

from __future__ import annotations

from minibroker.broker.handlers.context import code_for, find_replica, known_leader, say_if_damaged
from minibroker.broker.handlers.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, TOPIC_IDS_SINCE
from minibroker.errors import Error, KafkaError, LogDamaged
from minibroker.log import reading
from minibroker.log.compression import ZSTD
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.replication.leader import LeaderState
from minibroker.replication.replica import READ_COMMITTED, READ_UNCOMMITTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine

    from minibroker.broker.handlers.context import Context
    from minibroker.broker.handlers.fetch_sessions import Key, Session
    from minibroker.log.segment import Slice
    from minibroker.replication.replica import Replica

    PartitionRequest = FetchRequest.FetchTopic.FetchPartition
    Seen = tuple[int, int, int]  # a log's end, high watermark and leader epoch

TopicResponse = FetchResponse.FetchableTopicResponse
PartitionResponse = TopicResponse.PartitionData
AbortedTransaction = PartitionResponse.AbortedTransaction
DivergingEpoch = PartitionResponse.EpochEndOffset
LeaderHint = PartitionResponse.LeaderIdAndEpoch

CANNOT_CONVERT = (Error.UNSUPPORTED_VERSION, Error.UNSUPPORTED_COMPRESSION_TYPE)
SOFT_LIMITS_SINCE = 3  # before, a partition gets no byte more than it asked for, even if that cuts its first batch
ZSTD_SINCE = 10
FOLLOWERS_SINCE = 11


def fetch(request: FetchRequest, context: Context) -> FetchResponse | Coroutine[None, None, FetchResponse]:
    """Read what is asked for; wait for it if the client wants to."""
    if not READ_UNCOMMITTED <= request.isolation_level <= READ_COMMITTED:
        return _refuse_all(request, context)
    try:
        round_ = Round(request, context)
    except KafkaError as error:
        return FetchResponse(error_code=error.code, session_id=NO_SESSION, responses=[])
    if round_.read() or request.max_wait_ms <= 0:
        return round_.response()
    return _wait(round_, request, context, round_.seen())


def _refuse_all(request: FetchRequest, context: Context) -> FetchResponse:
    """Answer a request that makes no sense: as a whole, and up to v12 for each partition too."""
    error = Error.UNKNOWN_SERVER_ERROR
    records = None if context.node.appearance.is_before_4 else b""
    topics = [
        TopicResponse(
            topic=topic.topic,
            partitions=[
                PartitionResponse(
                    partition_index=partition.partition, error_code=error, high_watermark=-1, records=records
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return FetchResponse(error_code=error, responses=topics if context.api_version < TOPIC_IDS_SINCE else [])


async def _wait(round_: Round, request: FetchRequest, context: Context, seen: list[Seen]) -> FetchResponse:
    """Answer when there is enough, or the time is over. seen: what the round has read of."""
    from minibroker.broker.handlers.waiting import wait_for

    if round_.seen() != seen and round_.read():  # something came before this coroutine was run for the first time
        return round_.response()
    missing_bytes = round_.bytes_min - round_.found_bytes

    def is_enough(added_bytes: int) -> bool:
        nonlocal missing_bytes
        missing_bytes -= added_bytes
        return missing_bytes <= 0

    clock = context.node.clock
    deadline_ms = clock.now_ms() + request.max_wait_ms
    # What was added may lie above the high watermark still, or belong to an open transaction: then go on waiting.
    while await wait_for(round_.replicas, is_enough, deadline_ms - clock.now_ms(), clock):
        if round_.read():
            return round_.response()
        missing_bytes = max(round_.bytes_min - round_.found_bytes, 1)
    round_.read()
    return round_.response()


class Round:
    """One Fetch request on its way to an answer."""

    def __init__(self, request: FetchRequest, context: Context):
        self.request = request
        self.context = context
        self.version = context.api_version
        self.session: Session | None = None
        self.session_id = NO_SESSION
        self.replicas: list[Replica] = []
        self.found_bytes = 0
        self._wanted = self._resolve()
        context.connection.last_fetch = (context.client_id, self._wanted)
        self.bytes_max = min(request.max_bytes, context.node.fetch_bytes_max)
        self.bytes_min = min(request.min_bytes, self.bytes_max)
        self._answers: dict[Key, PartitionResponse] = {}
        self._leaders: set[int] = set()  # that the answer names

    def _resolve(self) -> dict[Key, PartitionRequest]:
        """Return every partition to read: of the request, or of the session that it goes on with."""
        request, node = self.request, self.context.node
        wanted: dict[Key, PartitionRequest] = {}
        for topic in request.topics:
            for partition in topic.partitions:
                wanted[topic.topic, topic.topic_id, partition.partition] = partition
        sessions = node.fetch_sessions
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                sessions.close(request.session_id)
            if request.session_epoch == INITIAL_EPOCH and self.version >= 7:
                session = sessions.open(wanted, self.version >= TOPIC_IDS_SINCE, self.context.now_ms)
                if session is not None:
                    self.session = session
                    self.session_id = session.session_id
            self.is_incremental = False
            return wanted
        forgotten = [
            (topic.topic, topic.topic_id, partition)
            for topic in request.forgotten_topics_data
            for partition in topic.partitions
        ]
        self.session = sessions.resume(
            request.session_id, request.session_epoch, self.version, wanted, forgotten, self.context.now_ms
        )
        self.is_incremental = self.session is not None
        if self.session is None:
            return wanted
        self.session_id = self.session.session_id
        return {key: cached.wanted for key, cached in self.session.partitions.items()}

    def seen(self) -> list[Seen]:
        """Return how far every partition is."""
        return [(replica.log.next_offset, replica.high_watermark, replica.leader_epoch) for replica in self.replicas]

    def read(self) -> bool:
        """Read every partition; return whether the answer may leave."""
        self.replicas = []
        self.found_bytes = 0
        self._answers = {}
        self._leaders = set()
        unknown: dict[Key, PartitionResponse] = {}
        left_bytes = self.bytes_max
        is_due = not self._wanted
        whole_batch = self.version >= SOFT_LIMITS_SINCE
        for key, wanted in self._wanted.items():
            answer = PartitionResponse(
                partition_index=wanted.partition, error_code=Error.NONE, high_watermark=-1, records=b""
            )
            replica = None
            try:
                replica = find_replica(
                    self.context.node, key[0], key[1], wanted.partition, by_id=self.version >= TOPIC_IDS_SINCE
                )
                answer.aborted_transactions = None  # from here on an error has no list of them either
                size_bytes = self._read_partition(replica, wanted, answer, left_bytes, whole_batch)
            except KafkaError as error:
                is_due = True
                say_if_damaged(self.context.node, error)
                self._refuse(key, answer, error, replica)
                if replica is None:
                    unknown[key] = answer  # they come last
                    continue
            else:
                self.replicas.append(replica)
                if size_bytes:
                    whole_batch = False
                    left_bytes = max(left_bytes - size_bytes, 0)
                    self.found_bytes += size_bytes
                is_due = is_due or answer.diverging_epoch.epoch >= 0 or answer.preferred_read_replica >= 0
            self._answers[key] = answer
        self._answers.update(unknown)
        return is_due or self.found_bytes >= self.bytes_min

    def _read_partition(
        self, replica: Replica, wanted: PartitionRequest, answer: PartitionResponse, left_bytes: int, whole_batch: bool
    ) -> int:
        """Read one partition; return how many bytes of the log are in the answer, whatever became of them."""
        request, log = self.request, replica.log
        if self.version >= FOLLOWERS_SINCE:
            replica.check_epoch(wanted.current_leader_epoch)  # consumers may read from followers too (KIP-392)
        else:
            replica.check_leader(wanted.current_leader_epoch)
        if wanted.partition_max_bytes < 0:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR, f"a limit of {wanted.partition_max_bytes} bytes")
        if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER, "no such replica of this partition")
        is_committed = request.isolation_level == READ_COMMITTED
        if wanted.last_fetched_epoch >= 0 and self._diverges(replica, wanted, answer):
            return 0
        answer.aborted_transactions = [] if is_committed else None
        if request.rack_id and self.context.node.sends_to_racks and self._is_nearer(replica, wanted, answer):
            return 0
        limit_offset = replica.readable_end(request.isolation_level)
        size_bytes_max = min(wanted.partition_max_bytes, left_bytes)
        found = reading.read(
            log,
            wanted.fetch_offset,
            size_bytes_max,
            limit_offset=limit_offset,
            whole_batch=whole_batch,
            may_cut=self.version < SOFT_LIMITS_SINCE,
        )
        answer.high_watermark = replica.high_watermark
        answer.last_stable_offset = log.last_stable_offset(replica.high_watermark)
        answer.log_start_offset = log.log_start_offset
        if found is None:
            return 0
        if self.version < ZSTD_SINCE:
            answer.records = self._for_old_clients(replica, found, wanted.fetch_offset)
        else:
            answer.records = found.view()
        if is_committed:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
                for entry in reading.aborted_transactions(log, found, wanted.fetch_offset)
            ]
        return found.size_bytes

    def _is_nearer(self, replica: Replica, wanted: PartitionRequest, answer: PartitionResponse) -> bool:
        """Send a consumer to a replica in its rack, if there is one that is not here."""
        role = replica.role
        if not isinstance(role, LeaderState):
            return False
        preferred = role.preferred_replica(self.request.rack_id, wanted.fetch_offset, self.context.steady_ms)
        if preferred < 0:
            return False
        answer.preferred_read_replica = preferred
        answer.high_watermark = replica.high_watermark
        answer.last_stable_offset = replica.log.last_stable_offset(replica.high_watermark)
        answer.log_start_offset = replica.log.log_start_offset
        return True

    def _diverges(self, replica: Replica, wanted: PartitionRequest, answer: PartitionResponse) -> bool:
        """Compare what the client fetched last with what the log has; tell it where they part."""
        log = replica.log
        epoch, end_offset = log.epochs.end_offset_for(wanted.last_fetched_epoch, log.next_offset)
        if epoch < 0 or end_offset < 0:
            raise KafkaError(Error.OFFSET_OUT_OF_RANGE, f"epoch {wanted.last_fetched_epoch} is not known")
        if epoch >= wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
            return False
        answer.diverging_epoch = DivergingEpoch(epoch=epoch, end_offset=end_offset)
        answer.high_watermark = replica.high_watermark
        answer.last_stable_offset = log.last_stable_offset(replica.high_watermark)
        answer.log_start_offset = log.log_start_offset
        return True

    def _for_old_clients(self, replica: Replica, found: Slice, offset: int) -> bytes | memoryview:
        """Return what a client below v10 can read."""
        # Kafka: from 4.0 on the clients that may not get it are those that cannot ask at all.
        is_old = self.context.node.appearance.is_before_4 or self.version < 4
        if is_old and replica.log.settings.validation.codec == ZSTD:
            raise KafkaError(Error.UNSUPPORTED_COMPRESSION_TYPE, "the topic is compressed with zstd")
        if self.version >= 4:
            return found.view()
        view = found.view()
        magic = 0 if self.version < 2 else 1
        if not reading.is_newer(found, magic):
            return view
        if not self.context.node.topic_config(replica.topic)["message.downconversion.enable"]:
            raise KafkaError(Error.UNSUPPORTED_VERSION, "message.downconversion.enable is false")
        pieces: list[bytes | memoryview] = []
        left_bytes = found.size_bytes
        try:
            for piece in reading.converted(replica.log, found, magic, offset):
                # The answer is not to be longer than what was read, be the last message cut for it.
                pieces.append(piece[:left_bytes] if pieces else piece)
                left_bytes -= len(piece)
                if left_bytes <= 0:
                    break
        except LogDamaged:
            if not pieces:
                raise
        return b"".join(pieces)

    def _refuse(self, key: Key, answer: PartitionResponse, error: KafkaError, replica: Replica | None) -> None:
        answer.error_code = code_for(error, self.version <= 5)
        is_before_3 = self.context.node.appearance.is_before_3
        answer.records = b""
        if error.code in CANNOT_CONVERT:
            answer.records, answer.aborted_transactions = b"" if is_before_3 else None, []
        elif replica is None and is_before_3:
            answer.aborted_transactions = None
        answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = -1
        if error.code in (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH):
            leader, epoch = known_leader(self.context.node, key[0], key[1], answer.partition_index)
            answer.current_leader = LeaderHint(leader_id=leader, leader_epoch=epoch)
            self._leaders.add(leader)

    def response(self) -> FetchResponse:
        """Return the answer: of a session only what is news."""
        topics: dict[tuple[str, bytes], list[PartitionResponse]] = {}
        for key, answer in self._answers.items():
            if self.session is not None:
                has_news = self.session.has_news(key, answer)
                if self.is_incremental and not has_news:
                    continue
            topics.setdefault(key[:2], []).append(answer)
        return FetchResponse(
            session_id=self.session_id,
            responses=[
                TopicResponse(topic=topic, topic_id=topic_id, partitions=partitions)
                for (topic, topic_id), partitions in topics.items()
            ],
            node_endpoints=self._endpoints(),
        )

    def _endpoints(self) -> list[FetchResponse.NodeEndpoint]:
        """Say where the leaders are that the answer names."""
        if not self._leaders:
            return []
        return [
            FetchResponse.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in self.context.node.brokers_for(self.context.connection)
            if node_id in self._leaders
        ]

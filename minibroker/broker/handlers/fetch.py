"""Fetch: batches as they lie in the log, from where the client asks.

Partitions are read in the order of the request, or of the session. If there is less than the client wants at least, the
answer waits until there is, or until the time is over. What is read is small, or it is read from the log's files as it
is sent, piece by piece; only clients of an age that does not know the stored format get a copy, converted.

What must hold: whatever changes what would be read ends up in Replica.tell, and a partition that has told is read
again: a high watermark, a last stable offset, the beginning or end of a log, a leader or an epoch, a disk that fails, a
topic that is deleted. How many bytes came decides nothing. Others are not looked at, however many there are.

Versions of Fetch: 3 the first batch comes whole whatever the limits, 4 batches of format 2 as they lie (converted
before), 6 a failed disk is told as such, 7 sessions (KIP-227), 10 zstd, 11 followers nearby (KIP-392), 13 topics by
their ids.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Final

from minibroker.broker.dispatch import Context, code_for, find_replica, known_leader
from minibroker.broker.handlers.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, TOPIC_IDS_SINCE, Session
from minibroker.clock import REQUEST
from minibroker.errors import Error, KafkaError
from minibroker.in_pieces import finish
from minibroker.log import reading
from minibroker.log.compression import ZSTD
from minibroker.log.index import FIRST, PRODUCER_ID, TXN_ENTRY
from minibroker.log.segment import Slice
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.replication.leader import LeaderState
from minibroker.replication.replica import READ_COMMITTED, READ_UNCOMMITTED, Replica
from minibroker.server.large_answer import LARGE_BYTES
from minibroker.turns import FIRST_US, SHARE_US, Work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.handlers.fetch_sessions import Key
    from minibroker.clock import Timer
    from minibroker.in_pieces import InPieces
    from minibroker.log.aborted import Aborted

    PartitionRequest = FetchRequest.FetchTopic.FetchPartition

TopicResponse = FetchResponse.FetchableTopicResponse
PartitionResponse = TopicResponse.PartitionData
AbortedTransaction = PartitionResponse.AbortedTransaction
DivergingEpoch = PartitionResponse.EpochEndOffset
LeaderHint = PartitionResponse.LeaderIdAndEpoch

CANNOT_CONVERT: Final = (Error.UNSUPPORTED_VERSION, Error.UNSUPPORTED_COMPRESSION_TYPE)
# Before, a partition gets no byte more than it asked for, even if that cuts its first batch
SOFT_LIMITS_SINCE: Final = 3
FORMAT_2_SINCE: Final = 4
ZSTD_SINCE: Final = 10
FOLLOWERS_SINCE: Final = 11
# Records that are more together than a connection sends at once are read when they are sent, but for partitions with
# less than a few kilobytes.
OPEN_BYTES: Final = LARGE_BYTES
# CHUNK_BYTES_MIN of the messages: shorter ones are joined with what stands around them
OPEN_PARTITION_BYTES: Final = 4096
AT_ONCE_MAX: Final = 200  # partitions that are read without a pause
READ_US: Final = 12
ABORTED_US: Final = 1
ABORTED_BYTES_AT_ONCE: Final = FIRST_US // ABORTED_US * TXN_ENTRY.size  # of all partitions together
CONVERTED_US: Final = 50  # each batch, beside what is said of its records


def fetch(
    request: FetchRequest, context: Context
) -> FetchResponse | Coroutine[None, None, FetchResponse] | Work[FetchResponse | Coroutine[None, None, FetchResponse]]:
    """Read what is asked for; wait for it if the client wants to."""
    if not READ_UNCOMMITTED <= request.isolation_level <= READ_COMMITTED:
        return refuse_all(request, context)
    try:
        round_ = Round(request, context)
    except KafkaError as error:
        return FetchResponse(error_code=error.code, session_id=NO_SESSION, responses=[])
    return answer_of(round_, request, context)


def answer_of(
    round_: Round, request: FetchRequest, context: Context
) -> FetchResponse | Coroutine[None, None, FetchResponse] | Work[FetchResponse | Coroutine[None, None, FetchResponse]]:
    """Read what a request wants, now or in shares, and wait if that is too little."""
    if round_.to_read_count > AT_ONCE_MAX:
        return _fetch_in_shares(round_, request, context)
    if round_.read() or request.max_wait_ms <= 0:
        return round_.response()
    round_.watch(list(round_.watched.changed))
    return _wait(round_, context.node.clock.after(request.max_wait_ms, round_.end, REQUEST))


def _fetch_in_shares(
    round_: Round, request: FetchRequest, context: Context
) -> Work[FetchResponse | Coroutine[None, None, FetchResponse]]:
    """Read a share of many partitions in each turn of the loop, and hear of what changes behind it."""
    session = round_.watched  # from now on, so that it hears of what changes behind the reading
    keys, is_left = session.in_order(session.changed), False
    try:
        for start in range(0, len(keys), AT_ONCE_MAX):
            share = [key for key in keys[start : start + AT_ONCE_MAX] if key in session.partitions]
            round_.read(share)
            round_.watch_readable(share)
            yield READ_US * len(share)
            if round_.is_superseded:
                error = Error.INVALID_FETCH_SESSION_EPOCH
                return FetchResponse(error_code=error, session_id=round_.session_id, responses=[])
            if session.is_closed:
                break
        round_.has_waited = True
        is_due = round_.read()  # what has changed behind the reading, too
        round_.read_cleaned()
        if is_due or request.max_wait_ms <= 0 or session.is_closed:
            made = round_.response()
            return made if isinstance(made, FetchResponse) else (yield from made)
        is_left = True
        return _wait(round_, context.node.clock.after(request.max_wait_ms, round_.end, REQUEST))
    finally:
        if session is not round_.session and not is_left:
            session.close()


def refuse_all(request: FetchRequest, context: Context) -> FetchResponse:
    """Answer a request that makes no sense: as a whole, and up to v12 for each partition too."""
    error = Error.UNKNOWN_SERVER_ERROR
    records = None if context.node.emulated.is_before_4 else b""
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


async def _wait(round_: Round, deadline: Timer) -> FetchResponse:
    """Answer when there is enough, or the time is over."""
    import asyncio

    session, is_due = round_.watched, False
    loop = asyncio.get_running_loop()
    try:
        while not (round_.is_over or session.is_closed or round_.is_superseded):
            changed = list(session.changed)
            if not changed:
                waiting: asyncio.Future[None] = loop.create_future()
                session.expect(waiting)
                await waiting
            elif round_.read():
                is_due = True
                break
            else:
                round_.watch(changed)
        if round_.is_superseded:
            error = Error.INVALID_FETCH_SESSION_EPOCH
            return FetchResponse(error_code=error, session_id=round_.session_id, responses=[])
        if not is_due:
            round_.read()
        round_.read_cleaned()
        made = round_.response()
        return made if isinstance(made, FetchResponse) else await round_.context.node.shares.run(made)
    finally:
        deadline.cancel()
        if session is not round_.session:
            session.close()


def wanted_in(request: FetchRequest) -> dict[Key, PartitionRequest]:
    """Return what a request says of partitions."""
    return {
        (topic.topic, topic.topic_id, partition.partition): partition
        for topic in request.topics
        for partition in topic.partitions
    }


class Round:
    """One Fetch request on its way to an answer."""

    def __init__(self, request: FetchRequest, context: Context):
        self.request = request
        self.context = context
        self.version = context.api_version
        self.found_bytes = 0
        self.is_incremental = False
        self.is_over = False  # the time that the client wants to wait
        self.has_waited = False  # so that what has been read may be read again
        self._wanted = wanted_in(request)  # of a fetch without a session
        self.session = session = self._find_session()  # of the client
        self.session_id = NO_SESSION if session is None else session.session_id
        self._session_epoch = INITIAL_EPOCH if session is None else session.epoch
        self._watched = session
        # Every partition that the answer may be about; each has its fetch_offset.
        self._asked: Mapping[Key, Any] = self._wanted if session is None else session.partitions
        context.connection.last_fetch = (context.client_id, self._asked)
        self.bytes_max = min(request.max_bytes, context.node.fetch_bytes_max)
        self.bytes_min = min(request.min_bytes, self.bytes_max)
        self._is_due = not self._asked
        self._answers: dict[Key, PartitionResponse] = {}
        self._unknown: set[Key] = set()  # of them those without a replica here: they come last
        self._read: dict[Key, tuple[Replica, Slice | None]] = {}  # without an error
        self._leaders: tuple[int, ...] = ()  # that the answer names
        self._aborted: dict[Key, tuple[Replica, Aborted]] = {}  # not yet in the answer
        self._aborted_bytes = 0  # of their entries

    def _find_session(self) -> Session | None:
        """Return the session that the request opens or goes on with."""
        request, node, session = self.request, self.context.node, None
        if request.session_id == NO_SESSION and request.session_epoch == FINAL_EPOCH:
            return None
        sessions, steady_ms = node.fetch_sessions, node.clock.steady_ms()
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                sessions.close(request.session_id)
            if request.session_epoch == INITIAL_EPOCH and self.version >= 7:
                session = sessions.open(self._wanted, self.version >= TOPIC_IDS_SINCE, steady_ms)
        else:
            forgotten = [
                (topic.topic, topic.topic_id, partition)
                for topic in request.forgotten_topics_data
                for partition in topic.partitions
            ]
            session = sessions.resume(
                request.session_id, request.session_epoch, self.version, self._wanted, forgotten, steady_ms
            )
            self.is_incremental = session is not None
        if session is not None and request.rack_id and node.sends_to_racks:
            session.look_everywhere()  # which replica is nearest depends on more than the partition
        return session

    # Waiting

    @property
    def watched(self) -> Session:
        """The session that hears of changes; of a fetch without one it is made for the time of the wait."""
        if self._watched is None:
            self._watched = Session()
            self._watched.update(self._wanted, [])
        return self._watched

    @property
    def is_superseded(self) -> bool:
        """Whether another request has taken the place of this one in their session."""
        return self.session is not None and self.session.epoch != self._session_epoch

    def end(self) -> None:
        """Answer now, whatever there is."""
        self.is_over = True
        self.watched.wake()

    def watch(self, keys: Iterable[Key]) -> None:
        """Hear of the next change of partitions that have been read; all of them could be."""
        self.has_waited = True
        session, isolation_level = self.watched, self.request.isolation_level
        for key in keys:
            session.changed.pop(key, None)
            session.partitions[key].watch(self._read[key][0], isolation_level)

    def watch_readable(self, keys: Iterable[Key]) -> None:
        """Hear of the next change of those partitions that could be read; the others are yet to be read."""
        had_waited = self.has_waited
        self.watch([key for key in keys if key in self._read])
        self.has_waited = had_waited

    def read_cleaned(self) -> None:
        """Read again where the cleaner has replaced segments meanwhile: that changes nothing, so nobody is told."""
        cleaned = []
        for key, (replica, found) in self._read.items():
            if found is not None:
                segments = replica.log.segments
                if segments[replica.log.segment_of(found.segment.base_offset)] is not found.segment:
                    cleaned.append(key)
        if cleaned:
            self.read(cleaned)

    def _settle(self, session: Session) -> None:
        """Leave to the session's next request what may have more to say; of the rest it will hear."""
        for key, (replica, found) in self._read.items():
            answer, cached = self._answers[key], session.partitions[key]
            if (
                found is None
                and answer.diverging_epoch.epoch < 0
                and replica.readable_end(self.request.isolation_level) <= cached.fetch_offset
            ):
                session.changed.pop(key, None)
                cached.watch(replica, self.request.isolation_level)
            else:
                session.changed.setdefault(key)

    # Reading

    def _to_read(self, keys: Iterable[Key] | None) -> Iterable[tuple[Key, PartitionRequest]]:
        session = self._watched
        if session is None:
            return self._wanted.items() if keys is None else [(key, self._wanted[key]) for key in keys]
        partitions = session.partitions
        return [(key, partitions[key].wanted) for key in session.in_order(session.changed if keys is None else keys)]

    @property
    def to_read_count(self) -> int:
        return len(self._wanted if self._watched is None else self._watched.changed)

    def read(self, keys: Iterable[Key] | None = None) -> bool:
        """Read the partitions that may have changed, or some of them; return whether the answer may leave."""
        by_id = self.version >= TOPIC_IDS_SINCE
        for key, wanted in self._to_read(keys):
            if self.has_waited:
                _, found = self._read.pop(key, (None, None))
                if found is not None:
                    self.found_bytes -= found.size_bytes
                self._unknown.discard(key)
            answer = PartitionResponse(
                partition_index=wanted.partition, error_code=Error.NONE, high_watermark=-1, records=b""
            )
            replica = None
            try:
                replica = find_replica(self.context.node, key[0], key[1], wanted.partition, by_id=by_id)
                answer.aborted_transactions = None  # from here on an error has no list of them either
                found = self._read_partition(replica, wanted, answer)
            except KafkaError as error:
                self._is_due = True
                self.context.node.say_if_damaged(error)
                if error.code == Error.UNKNOWN_TOPIC_ID and self.has_waited:
                    # The id was known when the request came, or it would not have waited.
                    error = KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, error.message)
                self._refuse(key, answer, error, replica)
                if replica is None:
                    self._unknown.add(key)
            else:
                self._read[key] = (replica, found)
                if found is not None:
                    self.found_bytes += found.size_bytes
            self._answers[key] = answer
        return self._is_due or self.found_bytes >= self.bytes_min

    def _read_partition(self, replica: Replica, wanted: PartitionRequest, answer: PartitionResponse) -> Slice | None:
        """Read one partition; return what of its log is in the answer."""
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
            return None
        answer.aborted_transactions = [] if is_committed else None
        if request.rack_id and self.context.node.sends_to_racks and self._is_nearer(replica, wanted, answer):
            return None
        # Kafka: answers at once, each time, who asks for what lies above its limit; here the answer waits for that.
        limit_offset = replica.readable_end(request.isolation_level)
        found = reading.read(
            log,
            wanted.fetch_offset,
            min(wanted.partition_max_bytes, max(self.bytes_max - self.found_bytes, 0)),
            limit_offset=limit_offset,
            whole_batch=not self.found_bytes and self.version >= SOFT_LIMITS_SINCE,
            may_cut=self.version < SOFT_LIMITS_SINCE,
        )
        answer.high_watermark = replica.high_watermark
        answer.last_stable_offset = log.last_stable_offset(replica.high_watermark)
        answer.log_start_offset = log.log_start_offset
        if found is not None and found.segment is not log.active:
            # What can be read goes on in a segment that this answer does not reach: waiting adds nothing to it.
            self._is_due = self._is_due or log.segments[log.segment_of(limit_offset)] is not found.segment
        return found

    def _fill(self, key: Key, replica: Replica, found: Slice) -> None:
        """Put what was found into the answer, as the client can read it."""
        answer, offset = self._answers[key], self._asked[key].fetch_offset
        try:
            if self.version < ZSTD_SINCE:
                self._check_codec(replica)
            answer.records = self._bytes_of(found)
            if self.request.isolation_level == READ_COMMITTED:
                from minibroker.log.aborted import aborted_transactions  # few ask for it

                aborted = aborted_transactions(replica.log, found, offset)
                if aborted.size_bytes:
                    self._aborted[key] = replica, aborted
                    self._aborted_bytes += aborted.size_bytes
        except KafkaError as error:
            self.context.node.say_if_damaged(error)
            self._refuse(key, answer, error, replica)

    def _is_nearer(self, replica: Replica, wanted: PartitionRequest, answer: PartitionResponse) -> bool:
        """Send a consumer to a replica in its rack, if there is one that is not here."""
        role = replica.role
        if not isinstance(role, LeaderState):
            return False
        preferred = role.preferred_replica(self.request.rack_id, wanted.fetch_offset, self.context.steady_ms)
        if preferred < 0:
            return False
        answer.preferred_read_replica = preferred
        self._is_due = True
        answer.high_watermark = replica.high_watermark
        answer.last_stable_offset = replica.log.last_stable_offset(replica.high_watermark)
        answer.log_start_offset = replica.log.log_start_offset
        return True

    def _diverges(self, replica: Replica, wanted: PartitionRequest, answer: PartitionResponse) -> bool:
        """Compare what the client fetched last with what the log has; tell it where they part."""
        log = replica.log
        epoch, end_offset = log.epochs.end_offset_for(wanted.last_fetched_epoch, log.log_end_offset)
        if epoch < 0 or end_offset < 0:
            raise KafkaError(Error.OFFSET_OUT_OF_RANGE, f"epoch {wanted.last_fetched_epoch} is not known")
        if epoch >= wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
            return False
        answer.diverging_epoch = DivergingEpoch(epoch=epoch, end_offset=end_offset)
        self._is_due = True
        answer.high_watermark = replica.high_watermark
        answer.last_stable_offset = log.last_stable_offset(replica.high_watermark)
        answer.log_start_offset = log.log_start_offset
        return True

    def _bytes_of(self, found: Slice) -> bytes | memoryview:
        """Return bytes of the log, or what they are read from when they are sent."""
        if self.found_bytes >= OPEN_BYTES and found.size_bytes >= OPEN_PARTITION_BYTES:
            return found.open()  # type: ignore[return-value]  # a chunk of the answer that connections know
        return found.view()

    def _check_codec(self, replica: Replica) -> None:
        """Refuse what a client below v10 cannot read."""
        # Kafka: from 4.0 on the clients that may not get it are those that cannot ask at all.
        is_old = self.context.node.emulated.is_before_4 or self.version < FORMAT_2_SINCE
        if is_old and replica.log.settings.validation.codec == ZSTD:
            raise KafkaError(Error.UNSUPPORTED_COMPRESSION_TYPE, "the topic is compressed with zstd")

    def _fill_converted(self, key: Key, replica: Replica, found: Slice) -> InPieces[None]:
        """Put what was found into the answer for a client below v4, batch by batch."""
        answer = self._answers[key]
        try:
            self._check_codec(replica)
            answer.records = yield from self._converted(replica, found, self._asked[key].fetch_offset)
        except KafkaError as error:
            self.context.node.say_if_damaged(error)
            self._refuse(key, answer, error, replica)

    def _converted(self, replica: Replica, found: Slice, offset: int) -> InPieces[bytes | memoryview]:
        magic = 0 if self.version < 2 else 1
        view = found.view()
        if not (yield from reading.is_newer_in_pieces(view, magic)):
            return view
        if not self.context.node.topic_config(replica.topic)["message.downconversion.enable"]:
            raise KafkaError(Error.UNSUPPORTED_VERSION, "message.downconversion.enable is false")
        pieces: list[bytes | memoryview] = []
        left_bytes = found.size_bytes
        try:
            for piece in reading.converted_in_pieces(replica.log, view, magic, offset):
                if isinstance(piece, int):
                    yield piece
                    continue
                # The answer is not to be longer than what was read, be the last message cut for it.
                pieces.append(piece[:left_bytes] if pieces else piece)
                replica.log.batches_converted_for_fetch += type(piece) is bytes  # others are old enough as they are
                left_bytes -= len(piece)
                yield CONVERTED_US
                if left_bytes <= 0:
                    break
        except KafkaError:
            if not pieces:
                raise
        return b"".join(pieces)

    def _refuse(self, key: Key, answer: PartitionResponse, error: KafkaError, replica: Replica | None) -> None:
        answer.error_code = code_for(error, self.version <= 5)
        is_before_3 = self.context.node.emulated.is_before_3
        answer.records = b""
        if error.code in CANNOT_CONVERT:
            answer.records, answer.aborted_transactions = b"" if is_before_3 else None, []
        elif replica is None and is_before_3:
            answer.aborted_transactions = None
        answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = -1
        if error.code in (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH):
            leader, epoch = known_leader(self.context.node, key[0], key[1], answer.partition_index)
            answer.current_leader = LeaderHint(leader_id=leader, leader_epoch=epoch)
            self._leaders += (leader,)

    def response(self) -> FetchResponse | Work[FetchResponse]:
        """Return the answer: of a session only what is news."""
        if self.version < FORMAT_2_SINCE:
            return self._response_in_pieces()
        for key, (replica, found) in self._read.items():
            if found is not None:
                self._fill(key, replica, found)
        if self._aborted_bytes > ABORTED_BYTES_AT_ONCE:
            return self._tell_aborted_in_shares(self._response())  # of which all else is decided now
        if self._aborted:
            finish(self._tell_aborted())
        return self._response()

    def _tell_aborted_in_shares(self, response: FetchResponse) -> Work[FetchResponse]:
        response.is_long = True
        yield from self._tell_aborted()
        return response

    def _tell_aborted(self) -> InPieces[None]:
        """Say in the answers which transactions were aborted."""
        for key, (replica, aborted) in self._aborted.items():
            answer = self._answers[key]
            told: list[AbortedTransaction] = []
            try:
                for rows in aborted.in_pieces():
                    told += [AbortedTransaction(producer_id=row[PRODUCER_ID], first_offset=row[FIRST]) for row in rows]
                    yield ABORTED_US * len(rows)
                answer.aborted_transactions = told
            except KafkaError as error:
                self.context.node.say_if_damaged(error)
                self._refuse(key, answer, error, replica)

    def _response_in_pieces(self) -> Work[FetchResponse]:
        """Return the answer to a client below v4. What is stored is converted, and others have their turn meanwhile.

        However long it takes: the client may ask for no less.
        """
        shares, spent_us, has_paused = self.context.node.shares, 0, False
        for key, (replica, found) in list(self._read.items()):
            is_due = found is not None
            while is_due:
                is_due = False
                if has_paused:
                    self.has_waited = True
                    self.read([key])  # the log may be another one by now, or lead no more
                    replica, found = self._read.get(key, (replica, None))
                if found is None:
                    break
                epoch = replica.leader_epoch
                for step_us in self._fill_converted(key, replica, found):
                    spent_us += step_us
                    if spent_us >= SHARE_US:
                        yield shares.turn()
                        spent_us, has_paused = 0, True
                        if not self._leads_still(key, replica, epoch):
                            is_due = True  # what was read may have been replaced by something else
                            break
        return self._response()

    def _leads_still(self, key: Key, replica: Replica, epoch: int) -> bool:
        if not replica.is_leader or replica.leader_epoch != epoch:
            return False
        try:
            return find_replica(self.context.node, key[0], key[1], replica.partition, by_id=False) is replica
        except KafkaError:
            return False

    def _response(self) -> FetchResponse:
        """Return the answer when all that was found is in it."""
        if self.session is not None and not self.session.is_closed:
            self._settle(self.session)
        topics: list[TopicResponse] = []
        topic_before: tuple[str, bytes] | None = None
        for key, answer in self._in_order():
            if self.session is not None and not self._is_news(self.session, key, answer):
                continue
            if key[:2] != topic_before:  # a topic stands there again where the order has come back to it
                topic_before = key[:2]
                topics.append(TopicResponse(topic=key[0], topic_id=key[1], partitions=[]))
            topics[-1].partitions.append(answer)
        return FetchResponse(session_id=self.session_id, responses=topics, node_endpoints=self._endpoints())

    def _in_order(self) -> list[tuple[Key, PartitionResponse]]:
        """Return the answers of partitions in the order of the request, or of the session; of unknown ones last."""
        answers = self._answers
        if self.session is None or not self.is_incremental:
            found = list(answers.items())
        else:
            found = [(key, answers[key]) for key in self.session.in_order(answers)]
        if self._unknown:
            found.sort(key=lambda each: each[0] in self._unknown)
        return found

    def _is_news(self, session: Session, key: Key, answer: PartitionResponse) -> bool:
        """Return whether an answer belongs into the response of a session, and remember it and its place."""
        is_news = session.has_news(key, answer)
        if answer.records if self.is_incremental else key in self._unknown:
            session.move_to_end(key)
        return is_news or not self.is_incremental

    def _endpoints(self) -> list[FetchResponse.NodeEndpoint]:
        """Say where the leaders are that the answer names."""
        if not self._leaders:
            return []
        return [
            FetchResponse.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in self.context.node.brokers_for(self.context.connection)
            if node_id in self._leaders
        ]

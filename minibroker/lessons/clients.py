"""The clients of a lesson: they ask once, and tell what they were answered.

A real client hides what a lesson is about: it asks again, and finds another leader by itself. These do one thing at a
time and say so, in lines such as `broker 1 answers 2 records, and a high watermark of 2`.
What must hold: they come through the brokers' ports as every client does. Their patience is the loop's, for the clock
of a lesson stands still.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from minibroker.client.aborted import AbortedFilter
from minibroker.client.connection import CallTimeout, Connection, ConnectionLost
from minibroker.client.coordinators import GROUP
from minibroker.client.security import Security
from minibroker.client.transaction_calls import LAST_CLASSIC
from minibroker.cluster.snapshot import MARKERS, record_text
from minibroker.errors import Error, KafkaError
from minibroker.log.batches import Batch, batches
from minibroker.log.build import build_batch
from minibroker.log.reading import EARLIEST, LATEST
from minibroker.log.records import Record, control_type
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.delete_records import DeleteRecordsRequest
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from minibroker.protocol.messages.produce import ProduceRequest

FetchedPartition = FetchResponse.FetchableTopicResponse.PartitionData

PATIENCE_MS = 3_000
LONG_PATIENCE_MS = 24 * 3_600_000  # for answers that nobody waits for
FETCH_BYTES_MAX = 1 << 20
OFFSET_FETCH_VERSION = 9  # the last one that names topics
PRODUCE_VERSIONS = (1, 2)  # that carry batches of v0 and v1, the last ones
TEXTS_SHOWN_MAX = 12
ANSWER_MS = 120_000  # how long a leader may wait for its followers, before it says so
NOBODY = -1
ASKED_MAX = 5  # brokers, one after the other, for one read
WORDS = {EARLIEST: "earliest", LATEST: "latest"}
BEGINNINGS = {word: value for value, word in WORDS.items()}
ASK_ELSEWHERE = (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH, Error.UNKNOWN_LEADER_EPOCH)


class Unanswered(KafkaError):
    """A broker that is not there, or hangs."""


class NotPossible(ValueError):
    """A command that makes no sense now."""


class NoPlace(ValueError):
    """There is no offset to read from."""


def check(code: int, words: str) -> None:
    """Raise KafkaError for a code that is an error."""
    if code:
        raise KafkaError(Error(code), words)


class Asking:
    """Connections to brokers, opened when they are needed."""

    def __init__(self, address_of: Callable[[int], tuple[str, int]], client_id: str, patience_ms: int = PATIENCE_MS):
        self._address_of = address_of
        self.client_id = client_id
        self._patience_ms = patience_ms
        self.security: Security | None = None  # as whom it logs in
        self._connections: dict[int, Connection] = {}

    async def ask(
        self, broker: int, request: Request, timeout_ms: int | None = None, *, version: int | None = None
    ) -> Any:
        """Return what a broker answers."""
        timeout_ms = self._patience_ms if timeout_ms is None else timeout_ms
        try:
            connection = self._connections.get(broker)
            if connection is None or connection.closed:
                host, port = self._address_of(broker)
                connection = await Connection.open(
                    host, port, client_id=self.client_id, timeout_ms=self._patience_ms, security=self.security
                )
                self._connections[broker] = connection
            return await connection.call(request, version, timeout_ms=timeout_ms)
        except (CallTimeout, ConnectionLost) as error:
            lost = self._connections.pop(broker, None)
            if lost is not None:
                await lost.close()
            raise Unanswered(Error.NETWORK_EXCEPTION, f"broker {broker} does not answer") from error

    async def topic(self, broker: int, name: str) -> Any:
        """Return what a broker knows of a topic."""
        answer = await self.ask(broker, MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)]))
        return answer.topics[0]

    async def coordinator(self, broker: int, key: str, key_type: int = GROUP) -> int:
        """Return who looks after a group, or a transactional id, as a broker says it."""
        answer = await self.ask(broker, FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type))
        found = answer.coordinators[0]
        check(found.error_code, f"broker {broker} answers this, asked who looks after {key}")
        node_id: int = found.node_id
        return node_id

    async def committed(self, broker: int, group: str, topic: str, partition: int) -> int:
        """Return what a group has committed, -1 if nothing; refused while a transaction is open that may change it."""
        Group = OffsetFetchRequest.OffsetFetchRequestGroup
        wanted = [Group.OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
        request = OffsetFetchRequest(groups=[Group(group_id=group, topics=wanted)], require_stable=True)
        found = (await self.ask(broker, request, version=OFFSET_FETCH_VERSION)).groups[0]
        row = found.topics[0].partitions[0] if not found.error_code else found
        check(row.error_code, f"broker {broker} answers this, asked what {group} has committed")
        offset: int = row.committed_offset
        return offset

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()


class Origin(NamedTuple):
    """What a batch bears of its producer, if brokers are to know it."""

    producer_id: int
    epoch: int
    sequence: int
    transactional_id: str | None
    is_classic: bool


class Produced(NamedTuple):
    """Records to be sent in one batch."""

    topic: str
    topic_id: bytes
    partition: int
    records: Sequence[Record]
    acks: int
    origin: Origin | None = None
    format: int = 2
    codec: int = 0


def record_of(text: str, timestamp: int, *, is_keyed: bool = False) -> Record:
    """Return the record that a text is; keyed: of key=value, or of -key, a tombstone."""
    if not is_keyed:
        return Record(None, text.encode(), (), timestamp)
    if text.startswith("-"):
        return Record(text[1:].encode(), None, (), timestamp)
    key, equals, value = text.partition("=")
    if not equals:
        raise NotPossible(f'a keyed record is "key=value", or "-key" to delete it; not "{text}"')
    return Record(key.encode(), value.encode(), (), timestamp)


async def produce(asking: Asking, broker: int, batch: Produced, *, is_later: bool = False) -> str:
    """Send records in one batch; return what was answered. is_later: nobody waits for the answer."""
    answer = await asking.ask(
        broker,
        _request(batch),
        LONG_PATIENCE_MS if is_later else None,
        version=_version_for(batch),
    )
    texts = texts_of(batch)
    if answer is None:
        return f"nobody answers: acks=0, so {texts} may be anywhere, or nowhere"
    result = answer.responses[0].partition_responses[0]
    check(result.error_code, f"broker {broker} answers this to {texts}")
    return f"broker {broker} answers: {texts} is at offset {result.base_offset}"


def _version_for(batch: Produced) -> int | None:
    """Return the version of Produce that a producer of that kind speaks; None: the newest that the broker has."""
    if batch.format < 2:
        return PRODUCE_VERSIONS[batch.format]
    return LAST_CLASSIC["Produce"] if batch.origin is not None and batch.origin.is_classic else None


def data_of(batch: Produced) -> bytes:
    """Return the bytes that a producer makes of its records: it counts them from 0."""
    rows = [record._replace(offset=index) for index, record in enumerate(batch.records)]
    origin = batch.origin
    if origin is None:
        return build_batch(batch.format, rows, codec=batch.codec)
    return build_batch(
        2,
        rows,
        codec=batch.codec,
        producer_id=origin.producer_id,
        producer_epoch=origin.epoch,
        base_sequence=origin.sequence,
        transactional=origin.transactional_id is not None,
    )


def _request(batch: Produced) -> ProduceRequest:
    origin = batch.origin
    data = data_of(batch)
    Topic = ProduceRequest.TopicProduceData
    rows_of_topic = [Topic.PartitionProduceData(index=batch.partition, records=data)]
    return ProduceRequest(
        transactional_id=None if origin is None else origin.transactional_id,
        acks=batch.acks,
        timeout_ms=ANSWER_MS,
        topic_data=[Topic(topic_id=batch.topic_id, name=batch.topic, partition_data=rows_of_topic)],
    )


def texts_of(batch: Produced) -> str:
    if len(batch.records) > TEXTS_SHOWN_MAX or any(len(record.value or b"") > 100 for record in batch.records):
        count = len(batch.records)
        return f"what was sent ({count:,} record{'' if count == 1 else 's'})"
    return ", ".join(f'"{record_text(record)}"' for record in batch.records)


def batch_text(batch: Batch, now_ms: int) -> str:
    """Return what a batch is, in one line."""
    count = f"{batch.count or 'no'} record{'' if batch.count == 1 else 's'}"
    if batch.is_control:
        outcomes = ", ".join(MARKERS.get(control_type(record), "?") for record in batch.records())
        count = f"a marker: {outcomes}"
    if batch.producer_id >= 0:
        count += f" of producer {batch.producer_id} in epoch {batch.producer_epoch}"
        count += f", sequence {batch.base_sequence}" if batch.base_sequence >= 0 else ""
    horizon = batch.delete_horizon
    if horizon is None:
        return f"batch {batch.base_offset}..{batch.last_offset}: {count}"
    minutes = (horizon - now_ms) // 60_000
    when = f"in {minutes} minute{'' if minutes == 1 else 's'}" if horizon > now_ms else "any time now"
    return f"batch {batch.base_offset}..{batch.last_offset}: {count}; tombstones may go {when}"


async def delete_records(asking: Asking, broker: int, topic: str, partition: int, offset: int) -> None:
    """Let a partition begin at an offset; followers hear of it when they fetch, and nobody waits for them."""
    Topic = DeleteRecordsRequest.DeleteRecordsTopic
    wanted = Topic.DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[Topic(name=topic, partitions=[wanted])], timeout_ms=0)
    answer = await asking.ask(broker, request)
    code = answer.topics[0].partitions[0].error_code
    if code != Error.REQUEST_TIMED_OUT:
        check(code, f"broker {broker} answers this")


class Reader:
    """A consumer of one partition: what it knows is its position, and who led when it last asked."""

    def __init__(self, asking: Asking, topic: str, partition: int, rack: str = "", *, is_committed: bool = False):
        """is_committed: isolation.level=read_committed."""
        self.topic = topic
        self.partition = partition
        self.rack = rack
        self.isolation_level = int(is_committed)
        self.position = 0
        self._asking = asking
        self._topic_id = b""
        self._leader = NOBODY
        self._leader_epoch = -1
        self._nearby = NOBODY  # the replica that the leader has sent it to
        self._told: list[str] = []

    async def seek(self, start: int | str, brokers: Sequence[int]) -> list[str]:
        """Begin elsewhere."""
        self._told = []
        if isinstance(start, int):
            self.position = start
        else:
            await self._know_leader(brokers)
            self.position = await self.find_offset(BEGINNINGS[start])
            self._told.append(f"broker {self._leader} answers: {start} is offset {self.position}")
        return self._told

    async def _seek_time(self, since_ms: int, brokers: Sequence[int]) -> list[str]:
        """Begin with the first record that is not older."""
        await self._know_leader(brokers)
        found = await self.find_offset(since_ms)
        self.position = found if found >= 0 else await self.find_offset(LATEST)
        what = "the first one since then" if found >= 0 else "nothing since then; latest"
        return [f"broker {self._leader} answers: {what} is offset {self.position}"]

    async def resume(
        self, group: str, reset: str, coordinator: int, brokers: Sequence[int], since_ms: int | None = None
    ) -> list[str]:
        """Read from where a group has committed, or as auto.offset.reset says if there is no such place.

        since_ms: where by_duration begins.
        """
        committed = await self._asking.committed(coordinator, group, self.topic, self.partition)
        what = "nothing" if committed < 0 else str(committed)
        told = [f"broker {coordinator}, asked what {group} has committed, answers: {what}"]
        if committed >= 0:
            self.position = committed
            try:
                return told + await self.read(brokers)
            except KafkaError as error:
                if error.code != Error.OFFSET_OUT_OF_RANGE:
                    raise
                told += [*self._told, f"broker {self._leader} answers OFFSET_OUT_OF_RANGE to {committed}"]
        if reset == "none":
            raise NoPlace(f"{'; '.join(told)}; and auto.offset.reset=none leaves it to the program")
        told += await (self.seek(reset, brokers) if since_ms is None else self._seek_time(since_ms, brokers))
        return told + await self.read(brokers)

    async def read(self, brokers: Sequence[int]) -> list[str]:
        """Read until there is no more; return what was answered. brokers: that can be asked who leads."""
        self._told = []
        for _ in range(ASKED_MAX):
            await self._know_leader(brokers)
            source = self._leader if self._nearby == NOBODY else self._nearby
            try:
                answer = await self._fetch(source)
            except Unanswered as error:
                self._forget(error.message)
                continue
            code = answer.error_code
            if code in ASK_ELSEWHERE or (code and source == self._nearby):
                self._forget(f"broker {source} answers {Error(code).name}")
            elif code:
                raise KafkaError(Error(code), f"broker {source} answers this to offset {self.position}")
            elif answer.preferred_read_replica != NOBODY:
                self._nearby = answer.preferred_read_replica
                self._told.append(f"broker {source} answers: read from broker {self._nearby}")
            else:
                self._take(source, answer)
                return self._told
        raise KafkaError(Error.LEADER_NOT_AVAILABLE, "; ".join(self._told))

    def _take(self, source: int, answer: FetchedPartition) -> None:
        before = self.position
        rows, passed_over = [], []
        aborted = AbortedFilter((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
        for batch in batches(answer.records or b""):
            if not aborted.hides(batch):
                for record in batch.records():
                    if record.offset >= before:
                        rows.append(f"{record.offset} {record_text(record)}")
            elif not batch.is_control:
                passed_over.append(f"passes over {batch.base_offset} to {batch.last_offset}: aborted")
            self.position = max(self.position, batch.next_offset)
        count = f"{len(rows) or 'no'} record{'' if len(rows) == 1 else 's'}"
        end = f"its high watermark is {answer.high_watermark}"
        if self.isolation_level:
            end = f"its last stable offset is {answer.last_stable_offset}"
        self._told.append(f"broker {source} answers {count} from {before}; {end}")
        self._told += rows + passed_over
        self._told.append(f"position {self.position}")

    async def _fetch(self, broker: int) -> FetchedPartition:
        Topic = FetchRequest.FetchTopic
        asked = Topic.FetchPartition(
            partition=self.partition,
            current_leader_epoch=self._leader_epoch,
            fetch_offset=self.position,
            partition_max_bytes=FETCH_BYTES_MAX,
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=self.isolation_level,
            topics=[Topic(topic_id=self._topic_id, topic=self.topic, partitions=[asked])],
            rack_id=self.rack,
        )
        answer: FetchResponse = await self._asking.ask(broker, request)
        check(answer.error_code, f"broker {broker} answers this")
        return answer.responses[0].partitions[0]

    async def _know_leader(self, brokers: Sequence[int]) -> None:
        """Ask who leads, unless that is known: one broker after the other, until one answers."""
        for broker in brokers:
            if self._leader != NOBODY:
                return
            try:
                topic = await self._asking.topic(broker, self.topic)
            except Unanswered as error:
                self._told.append(error.message)
                continue
            check(topic.error_code, f"broker {broker} answers this, asked for {self.topic}")
            found = topic.partitions[self.partition]
            self._topic_id, self._leader, self._leader_epoch = topic.topic_id, found.leader_id, found.leader_epoch
            who = "nobody" if self._leader == NOBODY else f"broker {self._leader}"
            self._told.append(f"broker {broker}, asked who leads, answers: {who}, in epoch {self._leader_epoch}")
        if self._leader == NOBODY:
            raise KafkaError(Error.LEADER_NOT_AVAILABLE, "nobody leads")

    def _forget(self, why: str) -> None:
        self._told.append(why)
        self._leader = self._nearby = NOBODY

    async def find_offset(self, timestamp: int) -> int:
        """Return the offset of a time, by ListOffsets."""
        Topic = ListOffsetsRequest.ListOffsetsTopic
        asked = Topic.ListOffsetsPartition(partition_index=self.partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=self.isolation_level, topics=[Topic(name=self.topic, partitions=[asked])]
        )
        answer = await self._asking.ask(self._leader, request)
        found = answer.topics[0].partitions[0]
        check(found.error_code, f"broker {self._leader} answers this")
        offset: int = found.offset
        return offset

    async def ends(self, brokers: Sequence[int]) -> list[str]:
        """Tell where the partition begins and ends to consumers."""
        self._told = []
        await self._know_leader(brokers)
        first, end = await self.find_offset(EARLIEST), await self.find_offset(LATEST)
        return [f"earliest is {first}, latest is {end}"]

"""Records of transactions: appended, read by isolation level, ended by markers; what leaders know of producers."""

from __future__ import annotations

from minibroker.protocol.messages.describe_producers import DescribeProducersRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.differential.play import Play
from tests.differential.scenario.build import NOW_MS, create_request, fetch, fetch_topic, new_topic
from tests.differential.scenario.transaction_talk import NOBODY, OTHER, SOMEBODY, TOPIC, Identity, Producer

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LOGS = ("appended", "marked")
SILENCE_SECONDS = 0.5
EARLIEST, LATEST, GREATEST_TIME = -2, -1, -3

OffsetsTopic = ListOffsetsRequest.ListOffsetsTopic
Described = DescribeProducersRequest.TopicRequest
Marker = WriteTxnMarkersRequest.WritableTxnMarker
MarkerTopic = Marker.WritableTxnMarkerTopic


def play_data(play: Play) -> None:
    """Play everything in every version."""
    play.ask("create logs of transactions", create_request(*(new_topic(name, 2) for name in LOGS)))
    play.settle(*LOGS)
    for level in range(len(play.versions(ProduceRequest, 3))):
        append(play, level)
    for level in range(len(play.versions(WriteTxnMarkersRequest))):
        mark(play, level)
    _read_everything(play)


def append(play: Play, level: int) -> None:
    """Append to partitions of a transaction and to others, before, in and after it, rightly and wrongly."""
    producer = Producer(play, "append", level)

    def ask(step: str, request: ProduceRequest) -> None:
        producer.ask(step, request)

    here, there = {LOGS[0]: [0]}, {LOGS[0]: [1]}
    ask("by somebody unknown", producer.produce(here))
    ask("without a producer id", producer.produce(here, NOBODY))
    producer.ask("an id", producer.init())
    ask("not added", producer.produce(here))
    ask("not added, again", producer.produce(here))
    ask("not added, in the middle", producer.produce(there, sequence=5))
    ask("not added, of no transaction", producer.produce(there, transactional=False))
    producer.ask("added", producer.add(here))
    ask("added", producer.produce(here, sequence=1, count=2))
    ask("first", producer.produce(here, count=2))
    _read(play, "open", level)
    ask("again", producer.produce(here, count=2))
    ask("a gap", producer.produce(here, sequence=7))
    ask("here and there", producer.produce({LOGS[0]: [0, 1]}, sequence=3))
    ask("some are not there", producer.produce({LOGS[0]: [0, 9], "no-such-topic": [0], OTHER: [0]}, sequence=3))
    ask("of no transaction", producer.produce(here, sequence=4, transactional=False))
    ask("without a transactional id", producer.produce(here, sequence=4, name=None))
    ask("with another transactional id", producer.produce(here, sequence=4, name="another"))
    ask("with a blank transactional id", producer.produce(here, sequence=4, name=" "))
    ask("with a transactional id, of no producer", producer.produce(here, NOBODY, sequence=-1, transactional=False))
    epoch = producer.identity.epoch
    ask("of an older epoch", producer.produce(here, producer.identity._replace(epoch=epoch - 1), sequence=4))
    ask("of another producer", producer.produce(here, SOMEBODY))
    ask("a marker", producer.produce(here, sequence=4, control=True))
    ask("without a sequence", producer.produce(here, sequence=-1))
    ask("with acks 1", producer.produce(here, sequence=4, acks=1))
    two = producer.produce(here, sequence=5)
    two.topic_data += producer.produce({OTHER: [0]}, SOMEBODY).topic_data
    ask("of two producers", two)
    ask("to the topic of transactions", producer.produce({"__transaction_state": [0]}))
    describe_producers(play, "open")
    producer.ask("aborted", producer.end(commit=False))
    ask("after the end", producer.produce(here, sequence=5))
    ask("after the end, from the start", producer.produce(here))
    zombie = producer.identity
    producer.ask("an id for another", producer.init())
    ask("a zombie", producer.produce(here, zombie, sequence=6))
    ask("a zombie elsewhere", producer.produce(there, zombie))
    producer.ask("added again", producer.add({LOGS[0]: [0, 1]}))
    ask("a zombie in the transaction of another", producer.produce(here, zombie, sequence=6))
    ask("in another transaction", producer.produce({LOGS[0]: [0, 1]}, count=3))
    producer.ask("committed", producer.end())
    ask("a zombie after the end", producer.produce(here, zombie, sequence=6))
    _read(play, "ended", level)


def mark(play: Play, level: int) -> None:
    """Write markers by hand."""
    topic = LOGS[1]
    producer = Producer(play, "mark", level)
    producer.ask("an id", producer.init())
    producer.ask("added", producer.add({topic: [0, 1]}))
    producer.ask("first", producer.produce({topic: [0, 1]}, count=2))
    last = level == len(play.versions(WriteTxnMarkersRequest)) - 1
    epoch = producer.identity.epoch

    def marker(
        places: dict[str, list[int]], *, epoch: int = epoch, commit: bool = True, coordinator: int = 5, version: int = 0
    ) -> Marker:
        return Marker(
            producer_id=producer.identity.producer_id,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=[MarkerTopic(name=name, partition_indexes=numbers) for name, numbers in places.items()],
            coordinator_epoch=coordinator,
            transaction_version=version if last else 0,
        )

    for step, markers in {
        "nothing": [],
        "no topic": [marker({})],
        "no partition": [marker({topic: []})],
        "to some that are not there": [marker({topic: [9], "no-such-topic": [0]})],
        "of an older epoch": [marker({topic: [0]}, epoch=epoch - 1)],
        "to the topic of groups": [marker({"__consumer_offsets": [0]})],
        "to several, not there": [marker({topic: [0], "no-such-topic": [0]}, commit=False)],
        "again": [marker({topic: [0]})],
        "by a coordinator of the past": [marker({topic: [0]}, coordinator=4)],
        "by one of the past where it wrote nothing": [marker({topic: [1]}, coordinator=-1)],
        "by one of the future": [marker({topic: [0]}, coordinator=7)],
        "of a newer epoch": [marker({topic: [0]}, epoch=epoch + 3, coordinator=7)],
        "in version 1": [marker({topic: [0]}, epoch=epoch + 3, coordinator=7, version=1)],
        "in version 2, same epoch": [marker({topic: [0]}, epoch=epoch + 3, coordinator=7, version=2)],
        "in version 2": [marker({topic: [0]}, epoch=epoch + 4, coordinator=7, version=2)],
        "in version 9": [marker({topic: [0]}, epoch=epoch + 5, coordinator=7, version=9)],
        "of the last epoch": [marker({topic: [0]}, epoch=32767, coordinator=7)],
        "of a negative epoch": [marker({topic: [0]}, epoch=-1, coordinator=7)],
    }.items():
        producer.ask(step, WriteTxnMarkersRequest(markers=markers))
    producer.play.ask_silence(
        "mark: one twice",
        WriteTxnMarkersRequest(markers=[marker({topic: [0, 0]}, epoch=32767, coordinator=7)]),
        producer.version(WriteTxnMarkersRequest),
        SILENCE_SECONDS,
    )
    unknown = marker({topic: [0]})
    unknown.producer_id = SOMEBODY.producer_id
    producer.ask("of two", WriteTxnMarkersRequest(markers=[unknown, marker({topic: [0]}, epoch=32767, coordinator=7)]))
    nobody = marker({topic: [0]})
    nobody.producer_id = -1
    producer.ask("of nobody", WriteTxnMarkersRequest(markers=[nobody]))
    producer.identity = Identity(producer.identity.producer_id, 32767)
    producer.ask("appended after the last epoch", producer.produce({topic: [0]}))
    describe_producers(play, "marked")


def describe_producers(play: Play, when: str) -> None:
    """Ask what leaders know of producers."""
    for version in play.versions(DescribeProducersRequest):
        topics = [Described(name=name, partition_indexes=[0, 1]) for name in (*LOGS, TOPIC)]
        play.ask(f"producers, {when}", DescribeProducersRequest(topics=topics), version)


def _read(play: Play, when: str, level: int) -> None:
    """Read what there is at one level of Fetch and ListOffsets, by both isolation levels."""
    ids = play.ids
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        versions = play.versions(FetchRequest, 4)
        request = fetch(fetch_topic(LOGS[0], (0, 0), (1, 0), ids=ids), isolation_level=isolation)
        play.ask(f"read, {when}, {isolation}", request, versions[min(level, len(versions) - 1)])
        _list_offsets(play, when, isolation, play.versions(ListOffsetsRequest, 2)[level % 3])


def _read_everything(play: Play) -> None:
    """Read everything in every version, from several places."""
    for version in play.versions(FetchRequest):
        # What starts with a marker is converted to old formats twice in Kafka.
        places = [(READ_UNCOMMITTED, 0), *([(READ_COMMITTED, 0), (READ_COMMITTED, 17)] if version >= 4 else [])]
        for isolation, offset in places:
            for topic in LOGS:
                request = fetch(fetch_topic(topic, (0, offset), ids=play.ids), isolation_level=isolation)
                play.ask(f"{topic} from {offset}, {isolation}", request, version)
        small = fetch_topic(LOGS[0], (0, 0), ids=play.ids, limit_bytes=300)
        play.ask("the first bytes", fetch(small, isolation_level=READ_COMMITTED if version >= 4 else 0), version)
    for version in play.versions(ListOffsetsRequest):
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED) if version >= 2 else (READ_UNCOMMITTED,):
            _list_offsets(play, "at the end", isolation, version)


def _list_offsets(play: Play, when: str, isolation: int, version: int) -> None:
    for at in (LATEST, EARLIEST, *((GREATEST_TIME,) if version >= 7 else ()), *((NOW_MS,) if version else ())):
        topics = [
            OffsetsTopic(
                name=name,
                partitions=[
                    OffsetsTopic.ListOffsetsPartition(partition_index=number, timestamp=at, max_num_offsets=5)
                    for number in (0, 1)
                ],
            )
            for name in (LOGS if at != GREATEST_TIME else LOGS[:1])  # of two in one millisecond it is the first
        ]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=1000)
        play.ask(f"offsets, {when}, {isolation}, {at if at < 0 else 'by time'}", request, version)

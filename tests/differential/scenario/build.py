"""What the steps are made of: names of topics, batches, and the requests that many steps send."""

from __future__ import annotations

import time

from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.produce import ProduceRequest

NO_ID = bytes(16)
BAD_PARTITIONS = 32  # one for each kind of bad batch: what one changes does not move the offsets of the others
UNKNOWN_ID = bytes(range(16))
NOW_MS = (
    int(time.time() * 1000) // 1000 * 1000 - 3_600_000
)  # of the records: young enough to be kept, not in the future
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

NewTopic = CreateTopicsRequest.CreatableTopic
Assignment = NewTopic.CreatableReplicaAssignment
Config = NewTopic.CreatableTopicConfig
FetchTopic = FetchRequest.FetchTopic
FetchPartition = FetchTopic.FetchPartition
Forgotten = FetchRequest.ForgottenTopic
ProduceTopic = ProduceRequest.TopicProduceData
ProducePartition = ProduceTopic.PartitionProduceData


def records(
    count: int, *, at: int = NOW_MS, step_ms: int = 1000, first: int = 0, headers: bool = False
) -> list[Record]:
    """Return records that can be told apart, with keys, their times rising."""
    return [
        Record(
            key=b"key-%d" % (first + index),
            value=b"value-%d-" % (first + index) + b"." * 20,
            headers=(("n", b"%d" % index), ("null", None)) if headers else (),
            timestamp=at + index * step_ms,
            offset=index,
        )
        for index in range(count)
    ]


def batch(
    count: int = 3, *, magic: int = 2, codec: int = NONE, at: int = NOW_MS, first: int = 0, **fields: int
) -> bytes:
    """Return one batch with records."""
    return build_batch(magic, records(count, at=at, first=first, headers=magic == 2), codec=codec, **fields)  # type: ignore[arg-type]


def new_topic(name: str, partitions: int = 1, replication: int = 1, **configs: str | None) -> NewTopic:
    """Return a topic to be made; settings with `_` for the dots."""
    return NewTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        assignments=[],
        configs=[Config(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def create_request(*topics: NewTopic, validate_only: bool = False) -> CreateTopicsRequest:
    """Return a request that makes topics."""
    return CreateTopicsRequest(topics=list(topics), timeout_ms=10000, validate_only=validate_only)


def produce(
    topic: str,
    data: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    ids: dict[str, bytes],
    topic_id: bytes | None = None,
) -> ProduceRequest:
    """Return a request that appends to one partition."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=5000,
        topic_data=[produce_topic(topic, (partition, data), ids=ids, topic_id=topic_id)],
    )


def produce_topic(
    topic: str, *data: tuple[int, bytes | None], ids: dict[str, bytes], topic_id: bytes | None = None
) -> ProduceTopic:
    """Return the part of a produce request that is one topic's."""
    return ProduceTopic(
        name=topic,
        topic_id=ids.get(topic, UNKNOWN_ID) if topic_id is None else topic_id,
        partition_data=[ProducePartition(index=index, records=given) for index, given in data],
    )


def fetch(
    *topics: FetchTopic,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: list[Forgotten] | None = None,
) -> FetchRequest:
    """Return a consumer's fetch."""
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=list(topics),
        forgotten_topics_data=forgotten or [],
    )


def fetch_topic(
    topic: str,
    *offsets: tuple[int, int],
    ids: dict[str, bytes],
    limit_bytes: int = 1 << 20,
    epoch: int = -1,
    last_fetched_epoch: int = -1,
    topic_id: bytes | None = None,
) -> FetchTopic:
    """Return what is asked of a topic: pairs of partition and offset."""
    return FetchTopic(
        topic=topic,
        topic_id=ids.get(topic, UNKNOWN_ID) if topic_id is None else topic_id,
        partitions=[
            FetchPartition(
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=limit_bytes,
                current_leader_epoch=epoch,
                last_fetched_epoch=last_fetched_epoch,
            )
            for partition, offset in offsets
        ],
    )

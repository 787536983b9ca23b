"""Produce requests: one batch each of partitions that one broker leads, and what became of them.

    form = await form_for(cluster, leader, ["orders"], codec=NONE)       the version, and how topics are named in it
    await send(cluster, leader, form, {("orders", 0): batch}, acks=-1)   an outcome for each

What must hold: a partition that the answer leaves out has an outcome all the same, an error.
Not here: which batches, in which order, and how often they are sent (producer.py, spark/sink/sender.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from minibroker.client.connection import error_of
from minibroker.errors import Error, KafkaError
from minibroker.log.compression import ZSTD
from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from minibroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from minibroker.schema.types import NO_ID

if TYPE_CHECKING:
    from minibroker.client.cluster import Cluster, TopicPartition

LAST_VERSION_WITH_NAMES = 12
BATCHES_SINCE, ZSTD_SINCE = 3, 7  # versions
NO_TRANSACTION_MS = 0x7FFFFFFF


class Form(NamedTuple):
    """How a broker is asked."""

    version: int
    topic_ids: dict[str, bytes]  # 16 zeros where the version has names, or no id is known

    @property
    def magic(self) -> int:
        """Return the format of batches."""
        return min(2, max(0, self.version - 1))


class Outcome(NamedTuple):
    """What became of a batch."""

    base_offset: int = -1  # -1: acks 0, nobody knows
    append_time_ms: int = -1  # -1: records keep their own times
    error_code: int = 0
    reason: str = ""  # in the broker's words, if it has some

    def error(self, where: str = "") -> KafkaError:
        return error_of(self.error_code, ": ".join(filter(None, (where, self.reason))))


MISSING = Outcome(error_code=Error.UNKNOWN_SERVER_ERROR, reason="it is missing in the broker's answer")


async def form_for(
    cluster: Cluster,
    leader: int,
    topics: Iterable[str],
    *,
    codec: int,
    needs_batches: bool = True,
    version_max: int | None = None,
) -> Form:
    """Return the newest form that the broker knows; needs_batches: formats v0 and v1 will not do.

    version_max: of a transaction in the classic protocol, as newer versions are those of transactions v2.
    """
    version = (await cluster.connection(leader)).version_of(ProduceRequest)
    if version_max is not None:
        version = min(version, version_max)
    if needs_batches and version < BATCHES_SINCE:
        reason = f"batches of v2 need Produce v{BATCHES_SINCE}, of Kafka 0.11; this broker has v{version}"
        raise KafkaError(Error.UNSUPPORTED_VERSION, reason)
    if codec == ZSTD and version < ZSTD_SINCE:
        reason = f"zstd needs Produce v{ZSTD_SINCE}, this broker has v{version}"
        raise KafkaError(Error.UNSUPPORTED_COMPRESSION_TYPE, reason)
    ids = {topic: cluster.topics[topic].id if topic in cluster.topics else NO_ID for topic in topics}
    return Form(min(version, LAST_VERSION_WITH_NAMES) if NO_ID in ids.values() else version, ids)


async def send(
    cluster: Cluster,
    leader: int,
    form: Form,
    batches: Mapping[TopicPartition, bytes | memoryview],
    *,
    acks: int,
    timeout_ms: int,
    extra_ms: int,
    transactional_id: str | None = None,
) -> tuple[dict[TopicPartition, Outcome], int]:
    """Send batches; return what became of them, and for how many ms the broker wants to be left alone.

    timeout_ms: how long the broker may wait for its replicas; extra_ms: for the way of the answer.
    """
    Topic = ProduceRequest.TopicProduceData
    topics: dict[str, ProduceRequest.TopicProduceData] = {}
    for (topic, partition), data in batches.items():
        if topic not in topics:
            topics[topic] = Topic(topic_id=form.topic_ids[topic], name=topic, partition_data=[])
        topics[topic].partition_data.append(Topic.PartitionProduceData(index=partition, records=data))
    request = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values())
    )
    answer: ProduceResponse | None = await cluster.call(
        request, leader, version=form.version, timeout_ms=timeout_ms + extra_ms
    )
    if answer is None:
        return dict.fromkeys(batches, Outcome()), 0
    names = {form.topic_ids[topic]: topic for topic in topics} if form.version > LAST_VERSION_WITH_NAMES else {}
    found = dict.fromkeys(batches, MISSING)
    for row in answer.responses:
        for one in row.partition_responses:
            key = (names.get(row.topic_id) or row.name, one.index)
            if key in found:
                reason = _reason(one) if one.error_code else ""
                found[key] = Outcome(one.base_offset, one.log_append_time_ms, one.error_code, reason)
    return found, answer.throttle_time_ms


def _reason(row: ProduceResponse.TopicProduceResponse.PartitionProduceResponse) -> str:
    details = [row.error_message or "", *(each.batch_index_error_message or "" for each in row.record_errors)]
    return "; ".join(dict.fromkeys(filter(None, details)))


async def new_producer(cluster: Cluster) -> tuple[int, int]:
    """Return an id and epoch that no other producer has."""

    async def ask() -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_MS)
        answer: InitProducerIdResponse = await cluster.call(request)
        if answer.error_code:
            raise error_of(answer.error_code, "asking for a producer id")
        return answer.producer_id, answer.producer_epoch

    return await cluster.retrying(ask)

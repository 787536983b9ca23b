"""Code as people write it with messages: read by mypy --strict and pyright, run by nobody.

The lines with an `ignore` are mistakes that both must find: an ignore that is not needed is an error to both.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from minibroker.protocol import message
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.protocol.messages.produce import ProduceRequest


def ask(names: list[str]) -> bytes:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False).encode(12)


def leaders(answer: bytes) -> dict[tuple[str | None, int], int]:
    response = MetadataResponse.decode(answer, 12)
    return {
        (topic.name, partition.partition_index): partition.leader_id
        for topic in response.topics
        for partition in topic.partitions
    }


def by_name(frame: bytes) -> dict[str, object]:
    return message("ProduceRequest").decode(frame, 9).to_dict()


def mistakes(request: ProduceRequest) -> None:
    request.ack = 1  # type: ignore[attr-defined]
    request.acks = "all"  # type: ignore[assignment]
    MetadataRequest(topic=[])  # type: ignore[call-arg]
    MetadataRequest.decode("text", 0)  # type: ignore[arg-type]
    print(request.topic_data)

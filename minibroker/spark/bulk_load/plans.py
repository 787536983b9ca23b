"""Plan of a bulk load, which goes to its tasks, and the staged segments that come back.

Segments are staged as `<offset>.<kind>.load-<id>-<task>-<attempt>.deleted`, in the directory of the partition, or in
one that ends in `-delete` if the topic is new. Brokers remove both when they start, Kafka's too: whatever becomes of a
load, nobody takes its leavings for records.
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.controller.controller import check_name
from minibroker.errors import KafkaError
from minibroker.spark.bulk_load.options import LoadOptions
from minibroker.spark.options import INTERNAL_TOPICS

STAGED = ".deleted"  # the end of the name of what is not a segment yet


class LoadError(Exception):
    """Rows cannot become records of the topic that they are for."""


def check_topic(name: str) -> str:
    """Return the name of a topic that records can be loaded into."""
    if name in INTERNAL_TOPICS:
        raise LoadError(f"{name} is a topic of the broker's own, which nobody else writes to")
    try:
        check_name(name)
    except KafkaError as error:
        raise LoadError(f"{name!r} cannot be a topic: {error}") from error
    return name


class TopicPlan(NamedTuple):
    """What a task must know of a topic."""

    name: str
    partitions: int
    leader_epochs: list[int] | None  # of each partition; None: the topic is new
    segment_bytes: int
    segment_ms: int
    index_bytes: int
    index_interval_bytes: int
    max_message_bytes: int
    is_compacted: bool
    has_append_time: bool
    retention_ms: int  # -1: nothing becomes too old

    @property
    def batch_bytes_max(self) -> int:
        return min(self.max_message_bytes, self.segment_bytes)


class Plan(NamedTuple):
    """What all tasks of a load must know."""

    root: str
    is_new: bool  # nobody's directory yet
    load_id: str
    now_ms: int
    topics: dict[str, TopicPlan]
    new_topic: TopicPlan  # what those that are not there yet are like
    options: LoadOptions

    def topic_plan(self, name: str) -> TopicPlan:
        there, new = self.topics.get(name), self.new_topic
        count = self.options.partition_counts.get(name, new.partitions)
        return there or new._replace(name=name, partitions=count)

    def directory(self, topic: TopicPlan, partition: int) -> str:
        """Return where segments of a partition are staged."""
        if topic.leader_epochs is not None:
            return f"{topic.name}-{partition}"
        # Any broker takes this for the rest of a deleted log; Kafka too cuts topics that are too long.
        tail = f"-{partition}.{self.load_id}{sum(topic.name.encode()):06x}-delete"
        return topic.name[: 255 - len(tail)] + tail

    def suffix(self, task: int, attempt: int) -> str:
        return f".load-{self.load_id}-{task}-{attempt}{STAGED}"


class Piece(NamedTuple):
    """A staged segment."""

    topic: str
    partition: int
    task: int
    base_offset: int  # within the run
    end_offset: int
    suffix: str
    size_bytes: int
    largest_timestamp: int

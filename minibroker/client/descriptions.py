"""Values that administrators hand in and get back, and one error for many items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minibroker.errors import KafkaError
from minibroker.schema.types import NO_ID


class NewTopic(NamedTuple):
    """A topic to be created; -1 leaves a number to the broker (Kafka 2.4 and later)."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = {}
    assignments: Mapping[int, Sequence[int]] = {}  # partition -> brokers; then both numbers stay -1


class CreatedTopic(NamedTuple):
    """What became of a NewTopic; brokers below 2.4 tell nothing but that it exists."""

    name: str
    id: bytes = NO_ID
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = {}


class Append(NamedTuple):
    """Items to add to a setting that is a list, separated by commas."""

    value: str


class Subtract(NamedTuple):
    """Items to take out of a setting that is a list, separated by commas."""

    value: str


class ConfigSynonym(NamedTuple):
    """One of the places that set a value; the strongest wins."""

    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """A setting in force; numbers are those of DescribeConfigsResponse."""

    name: str
    value: str | None
    source: int
    is_default: bool
    is_sensitive: bool
    is_read_only: bool
    type: int
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None


class ClusterDescription(NamedTuple):
    """Who is there."""

    cluster_id: str | None
    controller_id: int
    nodes: dict[int, tuple[str, int]]  # id -> host and port


class LogDir(NamedTuple):
    """A log directory of one broker."""

    path: str
    error: int  # 0: it is in order
    size_bytes: dict[tuple[str, int], int]  # of each partition in it
    total_bytes: int  # of the volume; -1: not told
    usable_bytes: int


class ProducerState(NamedTuple):
    """What a leader remembers of an idempotent or transactional producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int  # -1: no transaction is open


class SomeFailed(KafkaError):
    """Some items of a call with many failed; the code is that of the first."""

    def __init__(self, errors: Mapping[Any, KafkaError], results: Mapping[Any, Any]):
        first = next(iter(errors.values()))
        super().__init__(first.code, "; ".join(f"{_named(item)}: {error}" for item, error in errors.items()))
        self.errors = errors  # item -> what went wrong with it
        self.results = results  # item -> what the call would have returned for it, of those that went well


def _named(item: object) -> str:
    return "-".join(map(str, item)) if isinstance(item, tuple) else str(item)

"""What an instance is, as the settings of a start say it: instance.NAME.SETTING (config/instance.txt).

What must hold: a setting that does not go with the others, or would have no effect, stops the start with a sentence
that says what to write; no topic and no listener belongs to two instances.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf
from typing import NamedTuple

from minibroker.config import BrokerConfig, ConfigError
from minibroker.config.listeners import client_listeners
from minibroker.config.tables import INSTANCE_PREFIX, split_instance
from minibroker.instances.reports import Flow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from minibroker.metadata.image import MetadataImage

LEASE_REPORTS = 5  # so many may be lost before a share has ended
PREFIX, LISTENER, ALLOWED = "topic.prefix", "listener", "allow.list"
PRODUCED, FETCHED, CAPACITY = "producer.byte.rate", "consumer.byte.rate", "capacity.bytes"
OF_FLOW = ("rule", "report.interval.ms")
INTERNAL = "__"  # how the names of Kafka's own topics begin

NO_LISTENER = "a connection is let in before it says which topics it wants: give the instance a listener of its own"


class Instance(NamedTuple):
    """One instance."""

    name: str
    prefix: str  # of its topics; "" if it has a listener
    listener: str  # "" if it has a prefix
    promised: Flow
    capacity_bytes: int  # 0: without end
    rule: str
    interval_ms: int
    refuses: bool  # records when it is full; else they wait

    @property
    def lease_ms(self) -> int:
        return self.interval_ms * LEASE_REPORTS

    @property
    def is_measured(self) -> bool:
        """Whether anything of it is promised or limited, so that brokers report."""
        return self.promised != (inf, inf) or self.capacity_bytes > 0


class Instances(list[Instance]):
    """All of a start, and whose a topic is."""

    def __init__(self, instances: Iterable[Instance]):
        super().__init__(instances)
        self._owners = sorted((each for each in self if each.prefix), key=lambda each: each.prefix)
        self._prefixes = [each.prefix for each in self._owners]

    def owner_of(self, topic: str) -> Instance | None:
        """Return the instance whose prefix a topic has.

        No prefix is the beginning of another, so none is sorted between a topic and the one that it has.
        """
        place = bisect_right(self._prefixes, topic) - 1
        return self._owners[place] if place >= 0 and topic.startswith(self._prefixes[place]) else None

    def partitions(self, instance: Instance, image: MetadataImage) -> dict[int, int]:
        """Return how many partitions of an instance each broker leads; brokers without any count with 0."""
        counts = dict.fromkeys(image.brokers, 0)
        for topic in self.topics(instance, image.topics):
            for partition in image.topics[topic].partitions:
                if partition.leader >= 0:
                    counts[partition.leader] = counts.get(partition.leader, 0) + 1
        return counts

    def topics(self, instance: Instance, topics: Iterable[str]) -> Iterable[str]:
        """Yield those of an instance: of one with a listener all that belong to no other."""
        for topic in topics:
            if instance.prefix:
                if topic.startswith(instance.prefix):
                    yield topic
            elif not topic.startswith(INTERNAL) and self.owner_of(topic) is None:
                yield topic


def allowed_networks(config: BrokerConfig, listener: str) -> list[str]:
    """Return the networks from which connections to a listener are let in; none: from all."""
    for each in read_instances(config):
        if each.listener == listener:
            networks: list[str] = config[key_of(each.name, ALLOWED)]
            return networks
    return []


def why_in_vain(key: str, config: BrokerConfig) -> str:
    """Say why altering a setting of an instance has no effect, which is not there or has no listener; or nothing."""
    instances = read_instances(config)
    found = next((each for each in instances if each.name == split_instance(key)[0]), None)
    if found is None:
        return f"there is no such instance; there are {', '.join(each.name for each in instances) or 'none'}"
    return "" if found.listener else NO_LISTENER


def read_instances(config: BrokerConfig) -> Instances:
    """Return the instances of a start; ConfigError if they cannot be so."""
    names = dict.fromkeys(split_instance(name)[0] for name in config.static if name.startswith(INSTANCE_PREFIX))
    found = Instances(_read(config, name) for name in names)
    for index, one in enumerate(found):
        for other in found[index + 1 :]:
            _check_apart(config, one, other)
    return found


def _read(config: BrokerConfig, name: str) -> Instance:
    def value(setting: str) -> object:
        return config[key_of(name, setting)]

    def error(setting: str, words: str) -> ConfigError:
        key = key_of(name, setting)
        return ConfigError(config.place_of(key), key, config.static.get(key, ""), words)

    prefix, listener = str(value(PREFIX) or ""), str(value(LISTENER) or "").upper()
    if bool(prefix) is bool(listener):
        words = "an instance has either topics or a listener: set one of the two"
        raise error(LISTENER if prefix else PREFIX, words)
    if prefix.startswith(INTERNAL):
        raise error(PREFIX, "Kafka's own topics are no instance's")
    there = [each.name for each in client_listeners(config)]
    if listener and listener not in there:
        raise error(LISTENER, f"there is no such listener; there are {', '.join(there)}")
    if key_of(name, ALLOWED) in config.static and not listener:
        raise error(ALLOWED, NO_LISTENER)
    promised = Flow(*(float(str(value(each))) or inf for each in (PRODUCED, FETCHED)))
    capacity_bytes = int(str(value(CAPACITY)))
    made = Instance(
        *(name, prefix, listener, promised, capacity_bytes, str(value("rule"))),
        *(int(str(value("report.interval.ms"))), value("full.policy") == "refuse"),
    )
    for setting in OF_FLOW:
        if promised == (inf, inf) and config.is_set(key_of(name, setting)) and not (capacity_bytes and "ms" in setting):
            raise error(setting, f"it is about the flow that is promised: set {PRODUCED} or {FETCHED}")
    if not capacity_bytes and config.is_set(key_of(name, "full.policy")):
        raise error("full.policy", f"the instance is never full: set {CAPACITY}")
    if not made.is_measured and not config.is_set(key_of(name, ALLOWED)):
        words = f"nothing is promised or limited: set {PRODUCED}, {FETCHED}, {CAPACITY} or {ALLOWED}"
        raise error(PREFIX if prefix else LISTENER, words)
    return made


def _check_apart(config: BrokerConfig, one: Instance, other: Instance) -> None:
    key = key_of(other.name, PREFIX if other.prefix else LISTENER)
    if one.listener and one.listener == other.listener:
        raise config.error(key, f"the listener is that of instance {one.name} already")
    if one.prefix and other.prefix and (one.prefix.startswith(other.prefix) or other.prefix.startswith(one.prefix)):
        raise config.error(key, f"topics would belong to instance {one.name}, too, whose begin with {one.prefix}")


def key_of(instance: str, setting: str) -> str:
    return f"{INSTANCE_PREFIX}{instance}.{setting}"

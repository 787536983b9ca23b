"""Topics that are made because somebody asks for them, and how those are made that brokers keep for themselves."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any

from minibroker.broker.broker_parts import TOPIC_US, BrokerParts, topic_shares
from minibroker.broker.metadata_standalone import StandaloneMetadata
from minibroker.config import BrokerConfig
from minibroker.controller.controller import RECORDS_MAX
from minibroker.errors import KafkaError
from minibroker.groups import OFFSETS_TOPIC, offsets_topic_configs
from minibroker.transactions import TRANSACTION_STATE_TOPIC, transaction_state_topic_configs
from minibroker.turns import Work

Client = tuple[str, str | None]  # user and client id
TopicPlan = tuple[int, int, Mapping[str, str]]  # partitions, replication factor, settings
# Topic -> beginning of the broker's settings for it, and the settings that it gets.
INTERNAL_TOPICS: dict[str, tuple[str, Callable[[BrokerConfig], Mapping[str, str]]]] = {
    OFFSETS_TOPIC: ("offsets.topic", offsets_topic_configs),
    TRANSACTION_STATE_TOPIC: ("transaction.state.log", transaction_state_topic_configs),
}


def plan_of(topic: str, config: BrokerConfig, broker_count: int) -> TopicPlan:
    """Return partitions, replication factor and settings of a topic that is made because it is asked for; -1: default.

    Kafka: does not make an internal topic before there are as many brokers as it wants replicas.
    """
    if topic not in INTERNAL_TOPICS:
        return -1, -1, {}
    prefix, configs_of = INTERNAL_TOPICS[topic]
    factor = min(config[f"{prefix}.replication.factor"], max(broker_count, 1))
    return config[f"{prefix}.num.partitions"], factor, configs_of(config)


def make_missing(
    node: BrokerParts, topics: Iterable[str], *, client: Client | None = None, waits: bool = True
) -> Coroutine[Any, Any, None] | None:
    """Make topics that are needed and not there; None: it is done, unless they cannot be made.

    client: whom they count for. Who has used up what it may change gets none, and is told nothing but that they are
    not there. waits: until all of their partitions are open. As with CreateTopics none is made where they would be too
    many for one request.
    """
    plans = {name: plan_of(name, node.config, len(node.image.brokers)) for name in topics}
    default = node.config["num.partitions"]
    if sum(default if partitions < 0 else partitions for partitions, _, _ in plans.values()) > RECORDS_MAX:
        return None
    if not isinstance(node.metadata, StandaloneMetadata):
        return node.metadata.create_topics(plans, client)
    return node.shares.start(_make(node, plans, client, waits=waits))


def _make(node: BrokerParts, plans: Mapping[str, TopicPlan], client: Client | None, *, waits: bool) -> Work[None]:
    made = []
    quota = None
    if client is not None:
        quota = node.mutation_quota.begin(*client, node.clock.elapsed_ms, is_strict=True)
    for share in topic_shares(list(plans.items())):
        with node.together():
            for name, (partitions, factor, configs) in share:
                with suppress(KafkaError):
                    node.create_topic(name, partitions, configs, replication_factor=factor, at_once=False, quota=quota)
                    made.append((name, range(len(node.image.topics[name].partitions))))
        yield TOPIC_US * len(share)
    waiting = node.opened(made) if waits else None
    if waiting is not None:
        yield waiting

"""What an instance may be told, and what stops the start: nothing that is not understood, or without effect."""

from __future__ import annotations

from math import inf

import pytest

from minibroker.config import BrokerConfig, ConfigError
from minibroker.instances.settings import allowed_networks, read_instances

SHOP = {"instance.shop.topic.prefix": "shop."}
FLOW = {"instance.shop.producer.byte.rate": "1000"}
LISTENERS = {
    "listeners": "PLAINTEXT://:9092,VIP://:9093",
    "listener.security.protocol.map": "VIP:PLAINTEXT,PLAINTEXT:PLAINTEXT",
}
VIP = {"instance.shop.listener": "vip", **LISTENERS}


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig.from_sources(settings)


def test_what_is_not_said_is_without_limit() -> None:
    (found,) = read_instances(config(**SHOP, **FLOW))
    assert found.promised == (1000.0, inf)
    assert (found.name, found.prefix, found.listener, found.capacity_bytes, found.rule) == (
        "shop",
        "shop.",
        "",
        0,
        "scaled",
    )
    assert (found.interval_ms, found.lease_ms, found.refuses, found.is_measured) == (1000, 5000, False, True)


def test_a_listener_is_named_as_kafka_names_it_in_either_case() -> None:
    (found,) = read_instances(config(**VIP, **FLOW))
    assert found.listener == "VIP"


def test_there_may_be_several() -> None:
    both = read_instances(
        config(**SHOP, **FLOW, **{"instance.bank.topic.prefix": "bank.", "instance.bank.capacity.bytes": "1"})
    )
    assert [each.name for each in both] == ["shop", "bank"]
    owner = both.owner_of("bank.a")
    assert owner is not None
    assert owner.name == "bank"
    assert both.owner_of("other") is None


def test_to_know_whose_a_topic_is_takes_no_look_at_every_instance() -> None:
    looks: list[str] = []

    class Topic(str):
        __slots__ = ()

        def startswith(self, prefix: str) -> bool:  # type: ignore[override]
            looks.append(prefix)
            return super().startswith(prefix)

    settings = {}
    for number in range(200):
        settings[f"instance.i{number}.topic.prefix"] = f"p{number}."
        settings[f"instance.i{number}.producer.byte.rate"] = "1"
    found = read_instances(config(**settings))
    for each in found:
        assert found.owner_of(Topic(f"{each.prefix}x")) is each
        assert found.owner_of(Topic(each.prefix)) is each
    assert len(looks) <= 400
    for name in ("", "p", "p0", "p200.x", "o", "q", "p1", "p19-", "\U0010ffff"):
        assert found.owner_of(name) is None


REFUSED = {
    "an unknown setting": (
        {**SHOP, "instance.shop.producer.rate": "1"},
        "an instance has instance.NAME. and one of allow",
    ),
    "no setting": ({"instance.shop": "1"}, "an instance has instance.NAME. and one of"),
    "a wrong number": ({**SHOP, "instance.shop.producer.byte.rate": "1MB"}, "Not a number of type LONG"),
    "a wrong rule": ({**SHOP, **FLOW, "instance.shop.rule": "fair"}, "String must be one of: scaled, ckafka"),
    "neither topics nor listener": (FLOW, "either topics or a listener"),
    "both": ({**SHOP, **VIP, **FLOW}, "either topics or a listener"),
    "internal topics": ({"instance.shop.topic.prefix": "__c", **FLOW}, "Kafka's own topics are no instance's"),
    "no such listener": ({**VIP, **FLOW, "instance.shop.listener": "other"}, "there are PLAINTEXT, VIP"),
    "networks of topics": ({**SHOP, **FLOW, "instance.shop.allow.list": "10.0.0.0/8"}, "give the instance a listener"),
    "a network with host bits": ({**VIP, "instance.shop.allow.list": "10.0.0.1/8"}, "10.0.0.1/8.* has host bits set"),
    "nothing": (SHOP, "nothing is promised or limited"),
    "a rule without flow": (
        {**SHOP, "instance.shop.capacity.bytes": "1", "instance.shop.rule": "ckafka"},
        "is promised",
    ),
    "a policy without capacity": ({**SHOP, **FLOW, "instance.shop.full.policy": "refuse"}, "is never full"),
    "the same listener": (
        {**VIP, **FLOW, "instance.b.listener": "VIP", "instance.b.capacity.bytes": "1"},
        "of instance shop",
    ),
    "topics of two": (
        {**SHOP, **FLOW, "instance.b.topic.prefix": "shop.a", "instance.b.capacity.bytes": "1"},
        "would belong to instance shop, too",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_stops_the_start(name: str) -> None:
    settings, said = REFUSED[name]
    with pytest.raises(ConfigError, match=said):
        read_instances(config(**settings))


def test_networks_change_while_it_runs() -> None:
    made = config(**VIP, **{"instance.shop.allow.list": "10.0.0.0/8, ::1/128"})
    assert allowed_networks(made, "VIP") == ["10.0.0.0/8", "::1/128"]
    assert allowed_networks(made, "PLAINTEXT") == []
    made.set_dynamic(default={"instance.shop.allow.list": "192.168.0.0/16"})
    assert allowed_networks(made, "VIP") == ["192.168.0.0/16"]

"""Quotas are set, taken back and described as Kafka's are; what is wrong with a wish is said, and changes nothing."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from minibroker.errors import Error
from minibroker.log.memory_storage import MemoryStorage
from minibroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from minibroker.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from tests.broker.virtual_broker import VirtualBroker, virtual_broker

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
Entity = dict[str, str | None]
BAD_FILTERS: dict[str, tuple[list[tuple[str, int, str | None]], str]] = {  # and a part of what is said against them
    "twice": ([("user", EXACT, "u"), ("user", EXACT, "v")], "Entity type user cannot appear more than once"),
    "no type": ([("", EXACT, "u")], "Invalid empty entity type."),
    "unknown": ([("group", EXACT, "u")], "Unsupported entity type group"),
    "exactly nobody": ([("user", EXACT, None)], "MATCH_TYPE_EXACT, but set match string to null"),
    "a default by name": ([("user", DEFAULT, "u")], "MATCH_TYPE_DEFAULT, but also specified a match string"),
    "anybody by name": ([("user", SPECIFIED, "u")], "MATCH_TYPE_SPECIFIED, but also specified a match string"),
    "another way": ([("user", 3, None)], "Unknown match type 3"),
    "an address and a user": ([("ip", EXACT, "127.0.0.1"), ("user", EXACT, "u")], "IP filter component"),
    "a user and an address": ([("user", EXACT, "u"), ("ip", EXACT, "127.0.0.1")], "IP filter component"),
}


def alter(broker: VirtualBroker, *wishes: tuple[Entity, dict[str, float | None]], validate_only: bool = False) -> Any:
    """Set limits, None takes one back; return code and words of each entity."""
    Entry = AlterClientQuotasRequest.EntryData
    entries = [
        Entry(
            entity=[Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
            ops=[Entry.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in limits.items()],
        )
        for entity, limits in wishes
    ]
    answer = broker.ask(AlterClientQuotasRequest(entries=entries, validate_only=validate_only), 1)
    return [(each.error_code, each.error_message) for each in answer.entries]


def described(broker: VirtualBroker, *rows: tuple[str, int, str | None], strict: bool = False) -> Any:
    Component = DescribeClientQuotasRequest.ComponentData
    components = [Component(entity_type=kind, match_type=way, match=match) for kind, way, match in rows]
    answer = broker.ask(DescribeClientQuotasRequest(components=components, strict=strict), 1)
    if answer.error_code:
        return answer
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries
    ]


ALL: list[tuple[Entity, dict[str, float | None]]] = [
    ({"user": "u"}, {PRODUCER: 1000.0, CONSUMER: 2000.0}),
    ({"user": None}, {"request_percentage": 50.5}),
    ({"user": "u", "client-id": "c"}, {PRODUCER: 3.0}),
    ({"user": "u", "client-id": None}, {PRODUCER: 4.0}),
    ({"client-id": "c"}, {"controller_mutation_rate": 0.5}),
    ({"client-id": None}, {CONSUMER: 6.0}),
    ({"ip": "127.0.0.1"}, {"connection_creation_rate": 7.0}),
    ({"ip": None}, {"connection_creation_rate": 8.0}),
]
FILTERS: dict[str, tuple[list[tuple[str, int, str | None]], list[int], list[int]]] = {  # finds, and strictly
    "nothing": ([], [0, 1, 2, 3, 4, 5, 6, 7], []),
    "a user": ([("user", EXACT, "u")], [0, 2, 3], [0]),
    "the default user": ([("user", DEFAULT, None)], [1], [1]),
    "any user": ([("user", SPECIFIED, None)], [0, 1, 2, 3], [0, 1]),
    "a client of any user": ([("user", SPECIFIED, None), ("client-id", EXACT, "c")], [2], [2]),
    "the default client": ([("client-id", DEFAULT, None)], [3, 5], [5]),
    "an address": ([("ip", EXACT, "127.0.0.1")], [6], [6]),
    "any address": ([("ip", SPECIFIED, None)], [6, 7], [6, 7]),
    "another user": ([("user", EXACT, "v")], [], []),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_finds_the_entities_that_have_what_it_names_strictly_and_nothing_else(
    broker: VirtualBroker, name: str
) -> None:
    assert alter(broker, *ALL) == [(Error.NONE, None)] * len(ALL)
    rows, found, found_strictly = FILTERS[name]
    assert described(broker, *rows) == [ALL[number] for number in found]
    assert described(broker, *rows, strict=True) == [ALL[number] for number in found_strictly]


@pytest.mark.parametrize("name", BAD_FILTERS)
def test_a_filter_that_makes_no_sense_is_refused(broker: VirtualBroker, name: str) -> None:
    rows, words = BAD_FILTERS[name]
    answer = described(broker, *rows)
    assert words in answer.error_message
    assert answer.entries is None
    assert answer.error_code == Error.UNSUPPORTED_VERSION if name == "unknown" else Error.INVALID_REQUEST


BAD_WISHES: dict[str, tuple[Entity, dict[str, float | None], str]] = {
    "nobody": ({}, {PRODUCER: 1.0}, "Invalid empty client quota entity"),
    "unknown": ({"group": "g"}, {PRODUCER: 1.0}, "Unhandled client quota entity type: group"),
    "empty": ({"user": ""}, {PRODUCER: 1.0}, "Empty user not supported"),
    "mixed": (
        {"user": "u", "ip": "127.0.0.1"},
        {PRODUCER: 1.0},
        "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
    ),
    "no address": (
        {"ip": "no.such.host.invalid"},
        {"connection_creation_rate": 1.0},
        "no.such.host.invalid is not a valid IP or resolvable host.",
    ),
    "no number": (
        {"ip": "10.0.0.2"},
        {"connection_creation_rate": nan},
        "Quota connection_creation_rate must be a finite number",
    ),
    "without end": ({"user": "u"}, {"request_percentage": inf}, "Quota request_percentage must be a finite number"),
    "no such key": ({"user": "u"}, {"no_such_key": 1.0}, "Invalid configuration key no_such_key"),
    "a key of addresses": (
        {"user": "u"},
        {"connection_creation_rate": 1.0},
        "Invalid configuration key connection_creation_rate",
    ),
    "nothing": ({"user": "u"}, {PRODUCER: 0.0}, f"Quota {PRODUCER} must be greater than 0"),
    "a fraction": ({"user": "u"}, {PRODUCER: 1.5}, f"{PRODUCER} cannot be a fractional value."),
    "too much": ({"user": "u"}, {PRODUCER: 1e19}, f"Proposed value for {PRODUCER} is too large for a LONG."),
    "too many": (
        {"ip": None},
        {"connection_creation_rate": 3e9},
        "Proposed value for connection_creation_rate is too large for an INT.",
    ),
}


@pytest.mark.parametrize("name", BAD_WISHES)
def test_a_wish_that_makes_no_sense_is_refused_and_the_others_are_fulfilled(broker: VirtualBroker, name: str) -> None:
    entity, limits, words = BAD_WISHES[name]
    good: tuple[Entity, dict[str, float | None]] = ({"user": "good"}, {PRODUCER: 1.0})
    assert alter(broker, (entity, limits), good) == [(Error.INVALID_REQUEST, words), (Error.NONE, None)]
    assert described(broker) == [good]


def test_an_entity_that_comes_twice_is_refused_and_its_first_wish_done(broker: VirtualBroker) -> None:
    told = alter(broker, ({"user": "u"}, {PRODUCER: 1.0}), ({"user": "u"}, {PRODUCER: 2.0}))
    assert told == [(Error.INVALID_REQUEST, "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})")]
    assert described(broker) == [({"user": "u"}, {PRODUCER: 1.0})]


def test_limits_are_changed_and_taken_back_one_by_one(broker: VirtualBroker) -> None:
    alter(broker, ({"user": "u"}, {PRODUCER: 1.0, CONSUMER: 2.0}))
    assert alter(broker, ({"user": "u"}, {PRODUCER: 3.0, CONSUMER: None, "request_percentage": None})) == [(0, None)]
    assert described(broker) == [({"user": "u"}, {PRODUCER: 3.0})]
    assert alter(broker, ({"user": "u"}, {PRODUCER: None})) == [(0, None)]
    assert described(broker) == []


def test_what_is_so_already_and_what_is_only_tried_is_not_written(broker: VirtualBroker) -> None:
    alter(broker, ({"user": "u"}, {PRODUCER: 1.0}))
    offset = broker.node.image.offset
    assert alter(broker, ({"user": "u"}, {PRODUCER: 1.0})) == [(0, None)]
    assert alter(broker, ({"user": "v"}, {PRODUCER: 1.0}), validate_only=True) == [(0, None)]
    assert alter(broker, ({"user": "v"}, {PRODUCER: -1.0}), validate_only=True)[0][0] == Error.INVALID_REQUEST
    assert broker.node.image.offset == offset


def test_quotas_are_there_after_a_restart() -> None:
    storage = MemoryStorage(lambda: 0)
    with virtual_broker(storage=storage) as broker:
        alter(broker, *ALL)
    with virtual_broker(storage=storage) as broker:
        assert described(broker) == ALL

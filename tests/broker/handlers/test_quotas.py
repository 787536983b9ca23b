"""Quotas: there are none, a filter that makes no sense is refused all the same, and so is every quota."""

from __future__ import annotations

import pytest

from minibroker.errors import Error
from minibroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from minibroker.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from tests.broker.virtual_broker import VirtualBroker

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
FILTERS: dict[str, tuple[list[tuple[str, int, str | None]], str]] = {  # and a part of what is said against them
    "nothing": ([], ""),
    "a user": ([("user", EXACT, "u")], ""),
    "an address": ([("ip", EXACT, "127.0.0.1")], ""),
    "any user of a client": ([("user", SPECIFIED, None), ("client-id", EXACT, "c")], ""),
    "the default": ([("client-id", DEFAULT, None)], ""),
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


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_finds_no_quota_or_makes_no_sense(broker: VirtualBroker, name: str) -> None:
    rows, words = FILTERS[name]
    Component = DescribeClientQuotasRequest.ComponentData
    components = [Component(entity_type=kind, match_type=way, match=match) for kind, way, match in rows]
    answer = broker.ask(DescribeClientQuotasRequest(components=components, strict=False), 1)
    if not words:
        assert (answer.error_code, answer.entries) == (Error.NONE, [])
    else:
        assert words in answer.error_message
        assert answer.entries is None
        code = Error.UNSUPPORTED_VERSION if name == "unknown" else Error.INVALID_REQUEST
        assert answer.error_code == code


def test_a_quota_is_refused_and_one_that_is_not_there_can_be_taken_back(broker: VirtualBroker) -> None:
    Entry = AlterClientQuotasRequest.EntryData
    entries = [
        Entry(
            entity=[Entry.EntityData(entity_type="user", entity_name=name)],
            ops=[Entry.OpData(key="producer_byte_rate", value=1.0, remove=removes) for removes in all_removes],
        )
        for name, all_removes in (("u", [True]), ("v", [False]), (None, [True, False]))
    ]
    answer = broker.ask(AlterClientQuotasRequest(entries=entries, validate_only=False), 1)
    told = [
        (each.entity[0].entity_type, each.entity[0].entity_name, each.error_code, each.error_message)
        for each in answer.entries
    ]
    refused = (Error.INVALID_REQUEST, "this broker throttles nobody")
    assert told == [("user", "u", Error.NONE, None), ("user", "v", *refused), ("user", None, *refused)]

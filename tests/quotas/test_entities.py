"""Whose limit holds: Kafka's order, from a user's client id down to the default of all client ids."""

from __future__ import annotations

from math import inf, nan

import pytest

from minibroker.quotas.entities import CONNECTION_RATE, ClientLimits, rates_by_address

Quotas = dict[tuple[tuple[str, str | None], ...], dict[str, float]]
KEY = "producer_byte_rate"
ALICE, APP = "alice", "app"
# Each entity with its limit, as Kafka's order has them, and who shares it then.
ORDER: list[tuple[tuple[tuple[str, str | None], ...], tuple[str, str]]] = [
    ((("client-id", APP), ("user", ALICE)), (ALICE, APP)),
    ((("client-id", None), ("user", ALICE)), (ALICE, APP)),
    ((("user", ALICE),), (ALICE, "")),
    ((("client-id", APP), ("user", None)), (ALICE, APP)),
    ((("client-id", None), ("user", None)), (ALICE, APP)),
    ((("user", None),), (ALICE, "")),
    ((("client-id", APP),), ("", APP)),
    ((("client-id", None),), ("", APP)),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_first_that_has_a_limit_counts_and_says_who_shares_it(first: int) -> None:
    quotas: Quotas = {entity: {KEY: float(number)} for number, (entity, _) in enumerate(ORDER) if number >= first}
    assert ClientLimits(quotas, KEY).find(ALICE, APP) == (ORDER[first][1], float(first))


@pytest.mark.parametrize("value", [nan, inf])
def test_what_is_no_number_limits_nothing(value: float) -> None:
    """Kafka 3.9 writes it."""
    quotas: Quotas = {(("user", ALICE),): {KEY: value}, (("ip", "10.0.0.2"),): {CONNECTION_RATE: value}}
    assert not ClientLimits(quotas, KEY)
    assert rates_by_address(quotas) == ({}, None)


def test_limits_of_others_and_of_another_kind_are_none() -> None:
    quotas: Quotas = {
        (("user", "bob"),): {KEY: 1.0},
        (("client-id", "other"),): {KEY: 1.0},
        (("user", ALICE),): {"consumer_byte_rate": 1.0},
        (("ip", "127.0.0.1"),): {CONNECTION_RATE: 1.0},
    }
    limits = ClientLimits(quotas, KEY)
    assert limits.find(ALICE, APP) is None
    assert limits
    assert not ClientLimits(quotas, "request_percentage")


@pytest.mark.parametrize(
    ("client_id", "entity", "owner"),
    [
        (None, (("user", ALICE),), (ALICE, "")),
        (None, (("client-id", None),), None),
        (None, (("client-id", None), ("user", ALICE)), None),
        ("", (("client-id", None),), None),
        ("", (("client-id", None), ("user", ALICE)), None),
    ],
)
def test_a_client_without_an_id_has_no_limit_of_client_ids(
    client_id: str | None, entity: tuple[tuple[str, str | None], ...], owner: tuple[str, str] | None
) -> None:
    found = ClientLimits({entity: {KEY: 5.0}}, KEY).find(ALICE, client_id)
    assert found == (None if owner is None else (owner, 5.0))


def test_a_client_with_an_empty_id_has_its_users_limit_behind_one_of_client_ids() -> None:
    quotas: Quotas = {(("client-id", None), ("user", ALICE)): {KEY: 1.0}, (("user", ALICE),): {KEY: 2.0}}
    assert ClientLimits(quotas, KEY).find(ALICE, "") == ((ALICE, ""), 2.0)
    assert ClientLimits(quotas, KEY).find(ALICE, None) is None


def test_rates_of_addresses_are_by_the_address_as_sockets_name_it() -> None:
    quotas: Quotas = {
        (("ip", "127.0.0.1"),): {CONNECTION_RATE: 3.0},
        (("ip", "0:0:0:0:0:0:0:2"),): {CONNECTION_RATE: 4.0},
        (("ip", "no address"),): {CONNECTION_RATE: 5.0},
        (("user", ALICE),): {CONNECTION_RATE: 6.0},
    }
    assert rates_by_address(quotas) == ({"127.0.0.1": 3, "::2": 4}, None)
    assert rates_by_address({(("ip", None),): {CONNECTION_RATE: 7.0}}) == ({}, 7)
    assert rates_by_address({(("ip", "localhost"),): {CONNECTION_RATE: 7.0}})[0] == {"127.0.0.1": 7, "::1": 7}

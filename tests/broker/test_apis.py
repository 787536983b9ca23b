"""What is announced is what works; what Kafka serves and we do not is a list that only gets shorter."""

from __future__ import annotations

import pytest

from docs.generate import missing_versions
from minibroker.broker.apis import SERVED, find_route
from minibroker.broker.releases import RELEASES, ranges_of, release_named
from minibroker.errors import KafkaError
from minibroker.protocol.registry import APIS

# Transactions, security, quotas, share and streams groups, telemetry, and what only several brokers need.
NOT_YET = {
    *(24, 25, 26, 27, 28, 65, 66),  # transactions
    *(17, 29, 30, 31, 36, 38, 39, 40, 41, 50, 51),  # security
    *(48, 49),  # quotas
    *(34, 55, 57, 64, 80, 81, 94),  # several brokers and directories
    *(71, 72, 74),  # client metrics
    *(76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92),  # share groups
    *(88, 89, 93),  # streams groups
}
UNSTABLE = {22: ["6 of 4.4"]}  # two-phase commit, which no release switches on


def test_missing_versions_are_known() -> None:
    missing = {number: found for number in APIS if (found := missing_versions(number))}
    assert set(missing) - set(SERVED) <= NOT_YET
    assert not NOT_YET & set(SERVED)
    assert {number: found for number, found in missing.items() if number in SERVED} == UNSTABLE


@pytest.mark.parametrize("api", SERVED)
def test_what_is_served_has_a_handler(api: int) -> None:
    first, last, _ = SERVED[api]
    for version in (first, last):
        assert callable(find_route(api, version).handler)


@pytest.mark.parametrize(
    ("name", "release"),
    [("4.x", "4.4"), ("4", "4.4"), ("2.8.1", "2.8"), ("0.8.2.2", "0.8.2"), ("0.11", "0.11.0"), ("3.9.0", "3.9")],
)
def test_releases_are_known_by_their_usual_names(name: str, release: str) -> None:
    assert release_named(name) == release


def test_a_release_that_never_was_is_refused() -> None:
    with pytest.raises(KafkaError, match=r"5\.0"):
        release_named("5.0")


def test_ranges_follow_the_releases() -> None:
    assert ranges_of("0.8.2")[0] == (0, 0)
    assert ranges_of("2.8")[0] == (0, 9)
    assert ranges_of("4.4")[0] == (3, 13)
    assert all(0 in ranges_of(release) for release in RELEASES)

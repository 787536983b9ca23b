"""Quotas of clients: how long whoever takes too much has to wait, and who is forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.metadata.image import MetadataImage
from minibroker.quotas import meters
from minibroker.quotas.client_quotas import ClientQuotas, RateQuota
from minibroker.stored.security import ClientQuotaRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.metadata.image import QuotaEntity

KEY = "producer_byte_rate"


def quota(limit: float, entity: str = "client-id", name: str | None = None, **more: int) -> RateQuota:
    found = RateQuota(KEY, 11, 1000, **more)
    found.take_limits({((entity, name),): {KEY: limit}})
    return found


def test_who_takes_too_much_waits_until_the_rate_is_the_limit() -> None:
    found = quota(100)
    assert found.record("u", "a", 1000, 0) == 0
    assert found.record("u", "a", 50, 0) == 500
    assert found.record("u", "b", 1000, 0) == 0  # each client id has the default for itself


def test_clients_of_a_user_share_its_limit() -> None:
    found = quota(100, "user", "u")
    assert found.record("u", "a", 1000, 0) == 0
    assert found.record("u", "b", 100, 0) == 1000
    assert found.record("v", "b", 10_000, 0) == 0
    assert len(found) == 1


def test_what_is_taken_back_is_not_counted() -> None:
    found = quota(100)
    assert found.record("u", "a", 2000, 0) == 10_000
    found.take_back("u", "a", 2000, 0)
    assert found.record("u", "a", 1000, 0) == 0


def test_a_new_limit_holds_at_once_for_what_was_measured_before() -> None:
    found = quota(100)
    found.record("u", "a", 900, 0)
    found.take_limits({(("client-id", "a"),): {KEY: 50.0}})
    assert found.record("u", "a", 1, 0) == 8020
    found.take_limits({})
    assert found.record("u", "a", 10_000, 0) == 0
    assert not found.has_limits


def test_no_one_waits_longer_than_the_most() -> None:
    assert quota(100, throttle_ms_max=1000).record("u", "a", 1_000_000, 0) == 1000


def test_a_window_is_what_can_be_taken_at_once() -> None:
    assert quota(100).window_bytes("u", "a") == 1000
    assert quota(1e12).window_bytes("u", "a") == (1 << 31) - 1
    assert quota(100, "user", "v").window_bytes("u", "a") == (1 << 31) - 1


def test_who_is_silent_for_an_hour_is_forgotten_when_another_comes() -> None:
    found = quota(100)
    found.record("u", "a", 1, 0)
    found.record("u", "b", 1, 1000)
    found.record("u", "c", 1, meters.EXPIRY_MS)
    assert len(found) == 2


def test_of_very_many_the_one_heard_of_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "METERS_MAX", 2)
    monkeypatch.setattr(meters, "CLIENTS_MAX", 2)
    found = quota(100)
    for client in ("a", "b", "a", "c"):
        found.record("u", client, 1000, 0)
    assert len(found) == 2
    assert found.record("u", "a", 100, 0) == 11_000  # with 2000 before
    assert found.record("u", "b", 1000, 0) == 0  # it begins anew


def test_of_long_names_a_digest_is_kept() -> None:
    found = quota(100)
    long = [letter * 32_000 for letter in "abc"]
    for client in long:
        assert found.record("u", client, 1000, 0) == 0  # each for itself
        assert found.record("u", client, 100, 0) == 1000
    assert len(found) == 3
    kept = [*found._meters, *found._found]
    assert sum(len(str(each)) for each in kept) < 1000


class Quotas(dict[Any, Any]):
    """Of an image; nobody goes through all of them."""

    def items(self) -> Any:
        raise AssertionError("all quotas are looked at")


def limit(image: MetadataImage, kind: str, name: str | None, key: str, value: float | None) -> QuotaEntity:
    """Have an image take in a limit, None takes it back; return whose it is."""
    parts = [ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name)]
    image.apply(ClientQuotaRecord(entity=parts, key=key, value=value or 0.0, remove=value is None))
    return ((kind, name),)


def test_there_are_limits_as_long_as_one_of_any_kind_is_there() -> None:
    quotas, image = ClientQuotas(11, 1, 11, 1), MetadataImage()
    for key in ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"):
        for value in (1.0, None):
            quotas.follow(image, [limit(image, "user", None, key, value)])
            assert quotas.has_limits is (value is not None)
    quotas.follow(image, [limit(image, "ip", None, "connection_creation_rate", 1.0)])
    assert not quotas.has_limits


def test_one_change_among_many_limits_is_taken_in_for_itself() -> None:
    found, image = RateQuota(KEY, 11, 1000), MetadataImage()
    for number in range(100):
        limit(image, "client-id", f"c{number}", KEY, 100.0)
    found.follow(image)
    assert found.find("u", "c7") == (("", "c7"), 100.0)
    image.client_quotas = Quotas(image.client_quotas)
    found.follow(image)  # nothing has changed
    found.follow(image, [limit(image, "client-id", "c7", KEY, 7.0), limit(image, "client-id", "c8", KEY, None)])
    assert found.find("u", "c7") == (("", "c7"), 7.0)
    assert found.find("u", "c8") is None
    assert found.find("u", "c9") == (("", "c9"), 100.0)


def test_who_has_missed_a_change_takes_all_limits_anew() -> None:
    found, image = RateQuota(KEY, 11, 1000), MetadataImage()
    found.follow(image, [limit(image, "client-id", "a", KEY, 1.0)])
    limit(image, "client-id", "a", KEY, 2.0)
    found.follow(image, [limit(image, "client-id", "b", KEY, 3.0)])
    assert found.find("u", "a") == (("", "a"), 2.0)
    other = MetadataImage()
    limit(other, "client-id", "c", KEY, 4.0)
    found.follow(other, [limit(other, "client-id", "d", KEY, 5.0)])
    assert found.find("u", "a") is None
    assert found.find("u", "c") == (("", "c"), 4.0)

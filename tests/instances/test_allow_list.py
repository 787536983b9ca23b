"""Which addresses may connect."""

from __future__ import annotations

import pytest

from minibroker.instances.allow_list import KNOWN_MAX, AllowList

ADDRESSES = {
    "10.1.2.3": True,
    "11.1.2.3": False,
    "::ffff:10.1.2.3": True,  # as a listener of both kinds sees it
    "::ffff:11.1.2.3": False,
    "fd00::1": True,
    "fe80::1%eth0": False,
    "fd12::1%eth0": True,
    "": False,
    "a name": False,
}


@pytest.mark.parametrize(("address", "expected"), ADDRESSES.items())
def test_an_address_is_in_a_network_or_not(address: str, expected: bool) -> None:
    found = AllowList(["10.0.0.0/8", "fd00::/8"])
    assert [found.allows(address), found.allows(address)] == [expected, expected]


def test_without_networks_everybody_may() -> None:
    assert AllowList([]).allows("1.2.3.4")


def test_addresses_are_remembered_but_not_without_end() -> None:
    found = AllowList(["10.0.0.0/8"])
    for number in range(KNOWN_MAX + 10):
        found.allows(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(found._known) <= KNOWN_MAX

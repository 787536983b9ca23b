"""Clients of a lesson that are limited, and what is said where a command makes no sense."""

from __future__ import annotations

import pytest

from minibroker.lessons.running import check
from minibroker.lessons.scenario import parse_scenario

pytestmark = pytest.mark.outside

START = """# Made up

    start 1 brokers
    topic orders
    limit shop producer_byte_rate=100

"""


def played(step: str) -> None:
    check(parse_scenario(START + "\n".join(f"    {line}" for line in step.splitlines()), "made.txt"))


@pytest.mark.parametrize("size_bytes", [200, 201, 5000])
def test_a_request_is_as_long_as_it_is_to_be(size_bytes: int) -> None:
    played(f"send orders-0 {size_bytes} bytes by shop\nrate shop\n----\ntold: 0 s ago: {size_bytes} bytes")


def test_samples_are_told_one_by_one() -> None:
    played(
        "send orders-0 300 bytes by shop\nadvance 2500ms\n"
        "send orders-0 200 bytes by shop\nadvance 500ms\nrate shop\n----\n"
        "told: 3 s ago: 300 bytes\ntold: 0.5 s ago: 200 bytes\ntold: 500 bytes in 10 s: 50 a second of 100"
    )


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        ("send orders-0 10 bytes by shop", "a request of 10 bytes has no place for a record"),
        (
            "send orders-0 500 bytes by mail for=1s",
            "100 requests of mail in 0 ms, and no more are sent: *",
        ),
        ("hear shop", "shop waits for nothing: knock shop"),
        ("send orders-0 5000 bytes by shop\nknock shop\nknock shop", "shop has knocked already: hear shop"),
        ("limit shop producer_byte_rate=fast", "limits are numbers, such as producer_byte_rate=1000: *"),
        ("limit shop no_such_rate=1", "INVALID_REQUEST: Invalid configuration key no_such_rate"),
    ],
)
def test_what_makes_no_sense_is_said(commands: str, reason: str) -> None:
    played(f"{commands}\n----\nerror: {reason}")


def test_whoever_is_not_limited_is_not_counted() -> None:
    played(
        "send orders-0 500 bytes by mail\nrate mail\n----\ntold: *nobody counts it*\ntold: *has counted nothing of mail"
    )

"""Every request in every version that is served, as Kafka writes it and with bytes changed: answered or refused."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from minibroker.broker.apis import SERVED
from minibroker.protocol.registry import APIS
from tests.fuzz import requests

MUTATIONS = 25


@pytest.fixture(autouse=True, scope="module")
def one_broker() -> Iterator[None]:
    yield
    requests.forget()


def shown(name: str, version: int, frame: bytes) -> str:
    return f"{name} v{version}: {frame.hex()}"


@pytest.mark.parametrize("variant", ["full", "null", "extreme"])
def test_what_kafka_writes_is_answered_or_refused(variant: str) -> None:
    seen = set()
    for name, version, frame in requests.frames(variant):
        seen.add((name, version))
        try:
            requests.check(frame)
        except Exception as error:
            error.add_note(shown(name, version, frame))
            raise
    assert {name for name, _ in seen} == {f"{APIS[api]}Request" for api in SERVED}


@pytest.mark.parametrize("api", SERVED, ids=lambda api: APIS[api])
def test_a_request_with_bytes_changed_is_answered_or_refused(api: int) -> None:
    chance = Random(api)
    name = f"{APIS[api]}Request"
    originals = [
        *(row for variant in ("full", "null", "extreme") for row in requests.frames(variant) if row[0] == name),
        *(row for row in requests.aimed_frames() if row[0] == name),
    ]
    for _, version, original in originals:
        for frame in (original, *(requests.mutated(original, chance) for _ in range(MUTATIONS))):
            try:
                requests.check(frame)
            except Exception as error:
                error.add_note(shown(name, version, frame))
                raise

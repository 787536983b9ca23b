"""No request costs out of proportion to its bytes: every API with many small elements, made from the declarations.

A sample: the newest version, 64 KB and 1 MB. `make amplification` has all, and prints the figures. Judged by the
processor time of the broker, by its memory and by what it says, with room for slow machines; not by the clock.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from minibroker.broker.apis import SERVED
from minibroker.protocol.registry import APIS
from tests.server.amplification import SIZES, Measured, cases
from tests.server.amplified import body, frame, long_strings, versions_of, worst_numbers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc says what a process takes")

CPU_MS_FREE, CPU_US_PER_BYTE = 400, 4  # four times what is aimed at
MEMORY_FREE, BYTES_PER_BYTE = 8 << 20, 20  # a small request may make an index grow, or a module be loaded
STRETCH_MS = 100  # five times what is aimed at
BOUNDS = ("answered", "closed")
WAITS = {11, 14}  # JoinGroup and SyncGroup wait for others


@pytest.fixture(scope="module")
def broker() -> Iterator[Measured]:
    measured = Measured()
    yield measured
    measured.close()


def check(name: str, data: bytes, broker: Measured) -> None:
    figures, size_bytes = broker.send(data, pings=False), len(data)
    assert not (said := broker.tracebacks()), f"{name}: {said}"
    assert figures.outcome in BOUNDS, f"{name}: {figures.outcome}"
    assert figures.cpu_ms < CPU_MS_FREE + size_bytes * CPU_US_PER_BYTE / 1000, f"{name}: {figures.cpu_ms:.0f} ms"
    assert figures.grown_bytes < MEMORY_FREE + size_bytes * BYTES_PER_BYTE, f"{name}: {figures.grown_bytes:.0f} bytes"
    assert figures.longest_ms < STRETCH_MS, f"{name}: {figures.longest_ms:.0f} ms in {figures.callback}"


@pytest.mark.parametrize("api", sorted(set(SERVED) - WAITS), ids=lambda api: APIS[api])
def test_many_small_elements_cost_no_more_than_their_bytes(api: int, broker: Measured) -> None:
    warm = frame(api, versions_of(api)[-1], body_of(api))
    broker.send(warm, pings=False)  # modules and codecs are made with the first request
    for number, version, path, kind in cases([api], newest=True):
        for label in ("64K", "1M") if kind == "distinct" else ("64K",):
            data = frame(number, version, body(number, version, path, kind, SIZES[label] - 100))
            check(f"{APIS[api]} v{version} {'.'.join(path)} {kind} {label}", data, broker)


def body_of(api: int) -> bytes:
    return next(worst_numbers(api, versions_of(api)[-1]))


@pytest.mark.parametrize("api", sorted(set(SERVED) - WAITS), ids=lambda api: APIS[api])
def test_long_strings_and_the_worst_numbers_cost_little(api: int, broker: Measured) -> None:
    version = versions_of(api)[-1]
    for made in worst_numbers(api, version):
        check(f"{APIS[api]} v{version} worst numbers", frame(api, version, made), broker)
    for path, made in long_strings(api, version, 1 << 20):
        check(f"{APIS[api]} v{version} long {'.'.join(path)}", frame(api, version, made), broker)

"""No request costs out of proportion to its bytes: every API with many small elements, made from the declarations.

A sample: the newest version, 64 KB and 1 MB. `make amplification` has all, and prints the figures. Judged by the
processor time of the broker, by its memory and by what it says, with room for slow machines; not by the clock.
What a connection and the first of its kind cost is no matter of bytes: who takes too long is sent once and several
times, and the difference judged.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from minibroker.broker.apis import SERVED
from minibroker.log.build import build_batch
from minibroker.log.compression import GZIP
from minibroker.log.records import Record
from minibroker.protocol.framing import encode_request
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.describe_groups import DescribeGroupsRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.registry import APIS
from minibroker.schema.bounds import ELEMENTS_MAX
from tests.server.amplification import SIZES, Measured, cases
from tests.server.amplified import body, frame, long_strings, versions_of, worst_numbers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc says what a process takes")

CPU_US_PER_BYTE, CPU_MS_MIN = 4, 10  # four times what is aimed at, and what any request may take
COPIES, TRIES = 3, 3  # of what has taken longer: a machine that is busy makes processor time longer, too
MEMORY_FREE, BYTES_PER_BYTE = 8 << 20, 20  # a small request may make an index grow, or a module be loaded
STRETCH_MS = 100  # five times what is aimed at
BATCH_RECORDS = 400_000  # 3.6 MB as they are, and a seventh of that by gzip
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
    assert figures.grown_bytes < MEMORY_FREE + size_bytes * BYTES_PER_BYTE, f"{name}: {figures.grown_bytes:.0f} bytes"
    if figures.longest_ms >= STRETCH_MS:  # modules are loaded once: it must be so again
        figures = broker.send(data, pings=False)
    assert figures.longest_ms < STRETCH_MS, f"{name}: {figures.longest_ms:.0f} ms in {figures.callback}"
    cpu_ms = [figures.cpu_ms]
    while cpu_ms[-1] >= max(CPU_MS_MIN, size_bytes * CPU_US_PER_BYTE / 1000):
        assert len(cpu_ms) <= TRIES, f"{name}: {', '.join(f'{each:.0f} ms' for each in cpu_ms)}"
        cpu_ms.append(further_ms(data, broker))


def further_ms(data: bytes, broker: Measured) -> float:
    """Return what one more of the same takes: without what a connection and the first of its kind cost."""
    once, often = broker.send(data, pings=False), broker.send(data * COPIES, pings=False)
    return (often.cpu_ms - once.cpu_ms) / (COPIES - 1)


@pytest.mark.slow
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


def produce_the_smallest_records(size_bytes: int) -> Request:
    """Return a request with as many records as may be unpacked."""
    made = build_batch(2, [Record(None, None, (), 1_700_000_000_000)] * BATCH_RECORDS, codec=GZIP)
    rows = [
        ProduceRequest.TopicProduceData.PartitionProduceData(index=index, records=made)
        for index in range((size_bytes - 10_000) // len(made))
    ]
    topic = ProduceRequest.TopicProduceData(name="wide", partition_data=rows)
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def describe_as_many_groups_as_are_taken(size_bytes: int) -> Request:
    width = (size_bytes - 1000) // ELEMENTS_MAX - 2  # of a name, and its length
    return DescribeGroupsRequest(groups=[f"{number:0{width}}" for number in range(ELEMENTS_MAX - 10)])


DEAREST = {
    "groups": (describe_as_many_groups_as_are_taken, 6),
    "records": (produce_the_smallest_records, 12),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DEAREST)
def test_eight_megabytes_of_the_dearest_let_others_in(name: str, broker: Measured) -> None:
    make, version = DEAREST[name]
    broker.send(b"".join(encode_request(make(1 << 20), version, 1, "test")), pings=False)  # modules and codecs are made
    data = b"".join(encode_request(make(8 << 20), version, 1, "test"))
    assert 7 << 20 < len(data) <= (8 << 20) + 4
    figures = broker.send(data)
    assert not (said := broker.tracebacks()), said
    assert figures.outcome == "answered"
    assert figures.cpu_ms > STRETCH_MS, "too little to say anything"
    assert figures.longest_ms < STRETCH_MS, f"{figures.longest_ms:.0f} ms in {figures.callback}"
    assert figures.cpu_ms < len(data) * CPU_US_PER_BYTE / 1000

"""What may make a broker take memory: announced lengths, arrays, nesting, and what unpacks to far more than it is."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from minibroker.log.build import build_batch
from minibroker.log.compression import GZIP, LZ4, SNAPPY, ZSTD
from minibroker.log.records import Record
from minibroker.protocol.messages.metadata import MetadataRequest
from tests.server.plain import PlainClient
from tests.server.running import batch, connected, fetch, frame, produce, running, said, settle
from tests.server.subprocesses import broker_process

CONNECTIONS = 1000
ANNOUNCED_BYTES = 100 * 1024 * 1024
RESIDENT_BYTES_MAX = 256 * 1024 * 1024
ASK = MetadataRequest(topics=[])


def latencies(client: PlainClient, count: int) -> list[float]:
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        client.ask(produce("t", batch(bytes(100))), 9)
        found.append((time.perf_counter() - begun) * 1e6)
    return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("sent_bytes", [5, 4000, 240_000])
def test_a_thousand_announced_frames_take_no_memory(sent_bytes: int) -> None:
    with broker_process("--port", "0", "--memory", "--quiet") as broker:
        client = PlainClient(broker.address)
        client.create("t", 1)
        latencies(client, 500)
        usual = latencies(client, 2000)
        piece = (ANNOUNCED_BYTES - 4).to_bytes(4, "big") + bytes(sent_bytes - 4)
        hostile = []

        def attack() -> None:
            for _ in range(CONNECTIONS):
                each = socket.create_connection(broker.address)
                hostile.append(each)
                with contextlib.suppress(ConnectionError):
                    each.sendall(piece)

        attacker = threading.Thread(target=attack)
        attacker.start()
        attacker.join()
        meanwhile = latencies(client, 2000)
        most = broker.status_bytes("VmHWM")
        print(
            f"\n{CONNECTIONS} x {sent_bytes} bytes of {ANNOUNCED_BYTES}: at most {most / 1e6:.0f} MB resident;"
            f" p99 {usual[-20]:.0f} µs before, {meanwhile[-20]:.0f} µs meanwhile"
        )
        assert most < RESIDENT_BYTES_MAX
        for each in hostile:
            each.close()
        client.ask(ASK, 9)
        client.close()
        assert broker.stop() == 0


@pytest.mark.slow
def test_readers_that_do_not_read_take_little_memory() -> None:
    with broker_process("--port", "0", "--memory", "--quiet", "-o", "message.max.bytes=2000000") as broker:
        client = PlainClient(broker.address)
        client.create("t", 1)
        for _ in range(100):
            client.ask(produce("t", batch(bytes(1_000_000))), 9)
        before = broker.status_bytes("VmRSS")
        slow = []
        for _ in range(20):
            each = PlainClient(broker.address)
            for _ in range(10):
                each.send(fetch("t", bytes_max=50_000_000), 12)
            slow.append(each)
        usual = latencies(client, 200)
        after = broker.status_bytes("VmHWM")
        print(
            f"\n20 readers that asked for 50 MB ten times: {(after - before) / 1e6:.0f} MB more; p99 {usual[-2]:.0f} µs"
        )
        assert after - before < 128 * 1024 * 1024
        for each in [client, *slow]:
            each.close()
        assert broker.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
async def test_a_bomb_is_refused_before_it_is_unpacked(codec: int) -> None:
    import resource

    bomb = build_batch(2, [Record(None, bytes(300_000_000), (), 1_700_000_000_000, 0)], codec=codec)
    async with running({"message.max.bytes": "100000000"}) as node, connected(node) as client:
        node.create_topic("t", configs={"compression.type": "gzip" if codec != GZIP else "lz4"})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answer = await client.ask(produce("t", bomb), 9)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert answer.responses[0].partition_responses[0].error_code != 0
        assert after - before < 200_000, f"{after - before} KiB more"
        assert node.replicas["t", 0].log.log_end_offset == 0


@pytest.mark.parametrize(
    "body",
    [
        "7fffffff",  # an array of topics
        "7fffffff" + 1000 * "0000",
        "00000001" + "7fff",
    ],
)
async def test_a_length_that_is_a_lie_closes_and_takes_nothing(body: str) -> None:
    async with running() as node, connected(node) as client:
        data = bytes.fromhex("0003000100000001ffff" + body)
        client.send(len(data).to_bytes(4, "big") + data)
        assert await client.is_closed()
        await settle(node)


async def test_a_million_empty_elements_are_refused() -> None:
    async with running() as node, connected(node) as client:
        # Metadata v1 with a million topics of empty names: 2 MB of request.
        data = bytes.fromhex("0003000100000001ffff") + (1_000_000).to_bytes(4, "big") + bytes(2_000_000)
        client.send(len(data).to_bytes(4, "big") + data)
        assert await client.is_closed()
        assert "more than 50000 elements" in said(node)[-1]


async def test_frames_are_cut_off_where_no_request_fits() -> None:
    whole = frame(produce("t", batch(b"a")), 9)[4:]
    async with running() as node:
        node.create_topic("t")
        for length in range(len(whole)):
            async with connected(node) as client:
                client.send(length.to_bytes(4, "big") + whole[:length])
                assert await client.is_closed()
        await settle(node)
        assert node.replicas["t", 0].log.log_end_offset == 0

"""What a client that is throttled costs the others: p99 of an innocent producer alone, and beside greedy ones.

    alone         nobody is limited, so nothing of quotas is loaded or asked
    counted       nobody else is there, but there is a limit for others, so each request is looked at
    throttled     beside ten connections that send 10 KB requests without a pause and share a limit of 100 kB/s
    unthrottled   beside the same ten without their limit: what they would cost

All in one run, interleaved: each round takes all in turn, and begins with another one. The innocent client sends
records of 100 bytes one after the other, and has no limit; the greedy ones are a process of their own.

    python -m bench.broker.neighbours [--rounds 21] [--round-trips 8000]      make bench-neighbours
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.broker.brokers import BROKERS, ENVIRONMENT, ROOT, Broker
from bench.broker.load import SMALL_BYTES, batch
from bench.broker.raw import VERSIONS, Raw, encoded, produce_frame
from bench.broker.rounds import Rounds, in_turn
from minibroker.protocol import message
from minibroker.protocol.framing import encode_request

VERSIONS["AlterClientQuotasRequest"] = 0
GREEDY, CONNECTIONS, GREEDY_BYTES, GREEDY_AT_ONCE = "greedy", 10, 10_000, 4
LIMIT = 100_000  # bytes a second of all greedy connections together
INNOCENT_TOPIC, GREEDY_TOPIC = "innocent", "taken"
SETTLED_S = 1.0  # the window's worth that may be taken at once is gone then
DRAINED_S = 0.2
WARM_UP = 500
WAYS = ("alone", "counted", "throttled", "unthrottled")


def be_greedy(address: str) -> None:
    """Send on ten connections as much as is taken, until standard input ends."""
    Produce: Any = message("ProduceRequest")
    data = Produce.TopicProduceData
    partition = data.PartitionProduceData(index=0, records=batch(GREEDY_BYTES, 1))
    topics = [data(name=GREEDY_TOPIC, partition_data=[partition])]
    request = Produce(acks=-1, timeout_ms=30_000, topic_data=topics)
    frames = b"".join(encode_request(request, VERSIONS["ProduceRequest"], 0, client_id=GREEDY)) * GREEDY_AT_ONCE
    host, _, port = address.rpartition(":")
    for _ in range(CONNECTIONS):
        connection = socket.create_connection((host, int(port)))
        threading.Thread(target=send_all, args=(connection, frames), daemon=True).start()
        threading.Thread(target=receive_all, args=(connection,), daemon=True).start()
    sys.stdin.read()


def send_all(connection: socket.socket, frames: bytes) -> None:
    while True:
        connection.sendall(frames)


def receive_all(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


def limit(raw: Raw, rate: float | None) -> None:
    Entry: Any = message("AlterClientQuotasRequest").EntryData  # type: ignore[attr-defined]
    change = Entry.OpData(key="producer_byte_rate", value=rate or 0.0, remove=rate is None)
    entry = Entry(entity=[Entry.EntityData(entity_type="client-id", entity_name=GREEDY)], ops=[change])
    answer = raw.ask("AlterClientQuotasRequest", entries=[entry], validate_only=False)
    assert answer.entries[0].error_code == 0, answer


def measured(broker: Broker, way: str, count: int) -> dict[str, float]:
    """Return what round trips of the innocent producer take, and what the greedy ones got meanwhile."""
    frame = produce_frame(INNOCENT_TOPIC, batch(SMALL_BYTES, 1))
    broker.create_topic(GREEDY_TOPIC, 1)
    with Raw(broker.address) as raw:
        limit(raw, LIMIT if way in ("counted", "throttled") else None)
        greedy = None
        if way in ("throttled", "unthrottled"):
            command = [sys.executable, "-m", "bench.broker.neighbours", "--greedy", broker.address]
            greedy = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdin=subprocess.PIPE)
        try:
            time.sleep(SETTLED_S)
            raw.round_trips(frame, WARM_UP if way != "unthrottled" else 1)
            before, begun, cpu = taken(raw), time.perf_counter(), broker.cpu_seconds()
            took = raw.round_trips(frame, count)
            cpu, passed = broker.cpu_seconds() - cpu, time.perf_counter() - begun
            got = (taken(raw) - before) * GREEDY_BYTES / passed
        finally:
            if greedy is not None:
                greedy.communicate()
                wait_until_done(raw)
            limit(raw, None)
            broker.delete_topic(GREEDY_TOPIC)  # memory does not hold it for long
    centiles = statistics.quantiles(took, n=100)
    return {
        "p50_us": centiles[49] * 1e6,
        "p99_us": centiles[98] * 1e6,
        "cpu_us": cpu / count * 1e6,
        "neighbours_kb_s": got / 1000,
    }


def taken(raw: Raw) -> int:
    """Return how many records the greedy ones have written."""
    data: Any = message("ListOffsetsRequest").ListOffsetsTopic  # type: ignore[attr-defined]
    topic = data(name=GREEDY_TOPIC, partitions=[data.ListOffsetsPartition(partition_index=0, timestamp=-1)])
    answer = raw.send(encoded("ListOffsetsRequest", replica_id=-1, topics=[topic]))
    end: int = answer.topics[0].partitions[0].offset
    return end


def wait_until_done(raw: Raw) -> None:
    """Wait until what the greedy ones had sent before they went has been worked off."""
    before, now = -1, taken(raw)
    while now != before:
        time.sleep(DRAINED_S)
        before, now = now, taken(raw)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--round-trips", type=int, default=8_000)
    parser.add_argument("--greedy", metavar="ADDRESS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.greedy:
        be_greedy(options.greedy)
        return
    run = Rounds("neighbours", options.rounds, "")
    with tempfile.TemporaryDirectory() as directory:
        broker = Broker("minibroker", BROKERS["minibroker memory"], Path(directory) / "broker", {})
        try:
            broker.create_topic(INNOCENT_TOPIC, 1)
            found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
            for number in range(options.rounds):
                for way in in_turn(WAYS, number):
                    # Beside those that nobody holds back a round trip takes a hundred times as long.
                    count = options.round_trips // (100 if way == "unthrottled" else 1)
                    found[way].append(measured(broker, way, count))
                    run.note("round trip", way, number, found[way][-1])
        finally:
            broker.stop()
    print("\n".join(table(found)))
    run.close()


def table(found: dict[str, list[dict[str, float]]]) -> list[str]:
    """Return medians over the rounds, and medians of the ratios to `alone` within each."""
    lines = [
        "| innocent producer | p50 µs | p99 µs | p50 to alone | p99 to alone | CPU µs a request | neighbours' kB/s |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for way, rows in found.items():
        middle = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        ratios = [
            statistics.median(row[key] / alone[key] for row, alone in zip(rows, found["alone"]))
            for key in ("p50_us", "p99_us")
        ]
        cells = [f"{middle['p50_us']:,.0f}", f"{middle['p99_us']:,.0f}", *(f"{ratio:.2f}" for ratio in ratios)]
        lines.append(f"| {way} | {' | '.join(cells)} | {middle['cpu_us']:,.0f} | {middle['neighbours_kb_s']:,.0f} |")
    return lines


if __name__ == "__main__":
    main()

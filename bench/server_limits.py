"""What a broker of ours needs for many connections and many partitions: memory and seconds, printed.

    5,000 idle connections      resident memory before and with them
    1,000 partitions            created by one CreateTopics request, and as 1,000 topics in one; stop, start, stop
    attackers                   1,000 connections that each announce 100 MiB, and what others notice: medians of ROUNDS

Each row is a `minibroker serve` of its own, on a directory below the system's temporary one, so seconds are also those
of its disk. Needs Linux for /proc.

    python bench/server_limits.py [ROUNDS]
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.framing import decode_response, encode_request
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest

CONNECTIONS = 5000
PARTITIONS = 1000
ATTACKERS = 1000
ANNOUNCED_BYTES = 100 * 1024 * 1024
ASKED = 3000


class Broker:
    """`minibroker serve`, until it is stopped."""

    def __init__(self, *arguments: str):
        begun = time.perf_counter()
        command = [sys.executable, "-m", "minibroker", "serve", "--port", "0", "--quiet", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout
        host, _, port = self.process.stdout.readline().strip().rpartition(":")
        self.address = host, int(port)
        self.start_seconds = time.perf_counter() - begun

    def stop(self) -> float:
        begun = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait() == 0
        return time.perf_counter() - begun

    def megabytes(self, name: str) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1000


def ask(client: socket.socket, request: Request, version: int) -> Any:
    client.sendall(b"".join(encode_request(request, version, 1, "bench")))
    length = int.from_bytes(client.recv(4, socket.MSG_WAITALL), "big")
    return decode_response(client.recv(length, socket.MSG_WAITALL), request.api, version)[1]


def create(client: socket.socket, topics: int, partitions: int) -> float:
    Topic = CreateTopicsRequest.CreatableTopic
    wanted = [
        Topic(name=f"t{index}", num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        for index in range(topics)
    ]
    begun = time.perf_counter()
    answer = ask(client, CreateTopicsRequest(topics=wanted, timeout_ms=60_000), 5)
    seconds = time.perf_counter() - begun
    assert not any(topic.error_code for topic in answer.topics), answer.topics[0]
    return seconds


def idle_connections() -> None:
    broker = Broker("--memory")
    clients = [socket.create_connection(broker.address)]
    ask(clients[0], MetadataRequest(topics=[]), 9)
    alone = broker.megabytes("VmRSS")
    begun = time.perf_counter()
    while len(clients) < CONNECTIONS:
        clients.append(socket.create_connection(broker.address))
        ask(clients[-1], MetadataRequest(topics=[]), 9)
    seconds = time.perf_counter() - begun
    full = broker.megabytes("VmRSS")
    stopped = broker.stop()
    print(
        f"{CONNECTIONS:,} idle connections   {full:6.0f} MB resident, {alone:.0f} MB with one; made in {seconds:.2f} s"
    )
    print(f"  stop with all of them    {stopped:6.2f} s")
    for client in clients:
        client.close()


def many_partitions(topics: int, partitions: int) -> None:
    directory = tempfile.mkdtemp()
    try:
        broker = Broker("--data-dir", directory)
        client = socket.create_connection(broker.address)
        created = create(client, topics, partitions)
        resident = broker.megabytes("VmRSS")
        client.close()
        print(f"{topics:,} topics of {partitions:,}       created in {created:5.2f} s, {resident:.0f} MB resident")
        stopped = broker.stop()
        broker = Broker("--data-dir", directory)
        again = broker.start_seconds, broker.megabytes("VmRSS"), broker.stop()
        print(f"  stop {stopped:.2f} s, start {again[0]:.2f} s with {again[1]:.0f} MB resident, stop {again[2]:.2f} s")
        broker = Broker("--data-dir", directory)
        client = socket.create_connection(broker.address)
        data = build_batch(2, [Record(None, bytes(100), (), 1_700_000_000_000, 0)])
        Topic = ProduceRequest.TopicProduceData
        for topic in range(topics):
            rows = [Topic.PartitionProduceData(index=index, records=data) for index in range(partitions)]
            topic_data = [Topic(name=f"t{topic}", partition_data=rows)]
            ask(client, ProduceRequest(acks=1, timeout_ms=1000, topic_data=topic_data), 9)
        client.close()
        print(f"  a record in each, stop {broker.stop():.2f} s")
        begun = Broker("--data-dir", directory)
        begun.process.kill()
        begun.process.wait()
        begun = Broker("--data-dir", directory)
        print(f"  start behind it after kill -9 {begun.start_seconds:.2f} s, stop {begun.stop():.2f} s")
    finally:
        shutil.rmtree(directory)


def attackers(rounds: int) -> None:
    data = build_batch(2, [Record(None, bytes(100), (), 1_700_000_000_000, 0)])
    Topic = ProduceRequest.TopicProduceData
    rows = [Topic.PartitionProduceData(index=0, records=data)]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[Topic(name="t0", partition_data=rows)])

    def p99(client: socket.socket) -> float:
        found = []
        for _ in range(ASKED):
            begun = time.perf_counter()
            ask(client, request, 9)
            found.append((time.perf_counter() - begun) * 1e6)
        return sorted(found)[-ASKED // 100]

    for sent_bytes in (4_000, 240_000):
        usual, meanwhile, most = [], [], []
        for _ in range(rounds):
            broker = Broker("--memory")
            client = socket.create_connection(broker.address)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            create(client, 1, 1)
            p99(client)
            usual.append(p99(client))
            hostile = []
            for _ in range(ATTACKERS):
                hostile.append(socket.create_connection(broker.address))
                with contextlib.suppress(ConnectionError):
                    hostile[-1].sendall((ANNOUNCED_BYTES - 4).to_bytes(4, "big") + bytes(sent_bytes - 4))
            meanwhile.append(p99(client))
            most.append(broker.megabytes("VmHWM"))
            for each in (client, *hostile):
                each.close()
            broker.stop()
        print(
            f"{ATTACKERS:,} attackers of {sent_bytes:,} bytes   at most {max(most):.0f} MB; p99 of others "
            f"{statistics.median(usual):.0f} µs before, {statistics.median(meanwhile):.0f} µs meanwhile"
        )


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    idle_connections()
    many_partitions(1, PARTITIONS)
    many_partitions(PARTITIONS, 1)
    attackers(int(sys.argv[1]) if len(sys.argv) > 1 else 3)


if __name__ == "__main__":
    main()

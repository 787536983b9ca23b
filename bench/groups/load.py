"""What is done with the groups of a broker: join and read, heartbeat, commit. Each returns figures."""

from __future__ import annotations

import asyncio
import selectors
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from bench.broker.brokers import Broker
from bench.broker.raw import Raw, commit_frame, produce_frame
from bench.broker.rounds import Figures
from minibroker.client.connection import Connection
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.messages.describe_groups import DescribeGroupsRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.heartbeat import HeartbeatRequest
from minibroker.protocol.messages.join_group import JoinGroupRequest
from minibroker.protocol.messages.sync_group import SyncGroupRequest

TOPIC = "shared"
NUMBERS = count()
READY_SECONDS_MAX = 60.0
COMMITTERS = 32
NO_ERROR = b"\0\0"
GROUPS, MEMBERS = 1000, 3
HEARTBEAT_SECONDS = 3.0  # as clients have it by default


def prepare(broker: Broker) -> Figures:
    """Have one record to read, and a coordinator that answers."""
    broker.create_topic(TOPIC, 1)
    with Raw(broker.address) as raw:
        raw.send(produce_frame(TOPIC, build_batch(2, [Record(None, b"hello", (), int(time.time() * 1000))])))
    return {"ready_ms": asyncio.run(_coordinated(broker.address))}


async def _coordinated(address: str) -> float:
    start = time.perf_counter()
    async with await _connected(address) as connection:
        while (await connection.call(FindCoordinatorRequest(key="first", key_type=0), 3)).error_code:
            if time.perf_counter() - start > READY_SECONDS_MAX:
                raise TimeoutError("nobody coordinates groups")
            await asyncio.sleep(0.01)
    return (time.perf_counter() - start) * 1e3


async def _connected(address: str) -> Connection:
    host, _, port = address.split(",")[0].rpartition(":")
    return await Connection.open(host, int(port))


# From subscribe to the first record


def first_records(broker: Broker, consume: Callable[[str, str], Any], rounds: int) -> Figures:
    """Have a new consumer in a new group read its first record, several times."""
    took_ms = []
    for _ in range(rounds):
        group = f"first-{next(NUMBERS)}"
        start = time.perf_counter()
        with consume(broker.address, group):
            took_ms.append((time.perf_counter() - start) * 1e3)
    return {"p50_ms": statistics.median(took_ms), "max_ms": max(took_ms)}


@contextmanager
def kafka_python(address: str, group: str) -> Iterator[None]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(TOPIC, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest")
    while not consumer.poll(timeout_ms=1000):
        pass
    yield
    consumer.close()


@contextmanager
def confluent(address: str, group: str, **more: str) -> Iterator[None]:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0, **more}
    )
    consumer.subscribe([TOPIC])
    while (message := consumer.poll(1.0)) is None or message.error():
        pass
    yield
    consumer.close()


def confluent_consumer_protocol(address: str, group: str) -> Any:
    return confluent(address, group, **{"group.protocol": "consumer"})


# Heartbeats of many groups


def heartbeats(broker: Broker, groups: int, seconds: float) -> Figures:
    """Have many groups of three members, and let each member heartbeat as often as clients do by default."""
    return asyncio.run(_heartbeats(broker, groups, seconds))


async def _heartbeats(broker: Broker, groups: int, seconds: float) -> Figures:
    before_mb = broker.memory_mb()["anonymous_mb"]
    connections = [await _connected(broker.address) for _ in range(MEMBERS)]
    names = [f"many-{next(NUMBERS)}" for _ in range(groups)]
    start = time.perf_counter()
    frames = [request for name in names for request in await _joined(connections, name)]
    joined_s = time.perf_counter() - start
    after_mb = broker.memory_mb()["anonymous_mb"]
    cpu, start, done = broker.cpu_seconds(), time.perf_counter(), 0
    while (left := seconds - (time.perf_counter() - start)) > 0:
        due = len(frames) * min(seconds - left, seconds) / HEARTBEAT_SECONDS
        while done < due:
            connection, request = frames[done % len(frames)]
            answer = await connection.call(request, 3)
            if answer.error_code:
                raise RuntimeError(f"a heartbeat was answered {answer.error_code}")
            done += 1
        await asyncio.sleep(0.005)
    took = time.perf_counter() - start
    figures = {
        "join_s": joined_s,
        "heartbeats_s": done / took,
        "cpu_percent": (broker.cpu_seconds() - cpu) / took * 100,
        "kb_a_group": (after_mb - before_mb) * 1024 / groups,
    }
    for connection in connections:
        await connection.close()
    return figures


async def _joined(connections: list[Connection], group: str) -> list[tuple[Connection, HeartbeatRequest]]:
    """Bring three members into one generation; return the heartbeat of each."""

    def join(member_id: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(30))],
        )

    first = await connections[0].call(join(""), 3)
    others = [asyncio.ensure_future(connection.call(join(""), 3)) for connection in connections[1:]]
    # Who joins again before all are there ends a rebalance that the last one then has to begin anew.
    seen = DescribeGroupsRequest(groups=[group])
    while len((await connections[0].call(seen, 2)).groups[0].members) < MEMBERS:
        await asyncio.sleep(0)
    answers = [await connections[0].call(join(first.member_id), 3), *[await each for each in others]]
    last = max(each.generation_id for each in answers)
    if any(each.error_code or each.generation_id != last for each in answers):
        raise RuntimeError(f"{group} did not come together")
    Given = SyncGroupRequest.SyncGroupRequestAssignment
    given = [Given(member_id=each.member_id, assignment=bytes(60)) for each in answers]
    leader = answers[0].leader
    syncs = [
        connection.call(
            SyncGroupRequest(
                group_id=group,
                generation_id=last,
                member_id=each.member_id,
                assignments=given if each.member_id == leader else [],
            ),
            3,
        )
        for connection, each in zip(connections, answers)
    ]
    for synced in await asyncio.gather(*syncs):
        if synced.error_code:
            raise RuntimeError(f"{group} did not sync: {synced.error_code}")
    return [
        (connection, HeartbeatRequest(group_id=group, generation_id=last, member_id=each.member_id))
        for connection, each in zip(connections, answers)
    ]


# Commits


def commits(broker: Broker, seconds: float) -> Figures:
    """Commit one offset a request, one after the other on each of several connections.

    Frames are made beforehand and answers counted by their lengths, so that what is measured is the broker.
    """
    with selectors.DefaultSelector() as selector:
        for number in range(COMMITTERS):
            frame = commit_frame(TOPIC, f"commits-{next(NUMBERS)}", number)
            host, _, port = broker.address.split(",")[0].rpartition(":")
            sock = socket.create_connection((host, int(port)))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(sock, selectors.EVENT_READ, frame)
            sock.sendall(frame)
        done, start, cpu = 0, time.perf_counter(), broker.cpu_seconds()
        while time.perf_counter() - start < seconds:
            for key, _ in selector.select():
                assert isinstance(key.fileobj, socket.socket)
                answer = key.fileobj.recv(4096)
                if answer[-2:] != NO_ERROR:  # how an answer about one partition ends in this version
                    raise RuntimeError(f"a commit was answered {answer.hex()}")
                done += 1
                key.fileobj.sendall(key.data)
        took, cpu = time.perf_counter() - start, broker.cpu_seconds() - cpu
        for key in list(selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
    return {"commits_s": done / took, "cpu_us": cpu / done * 1e6}

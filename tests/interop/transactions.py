"""Transactions in every state, made by one producer each over the wire, and all that a broker says of them then.

Two brokers are asked in the same words: a real Kafka behind its address, and ours in virtual time. What holds the
markers back is a gate: for Kafka a port that its messages to itself go through, for ours the calls between brokers.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple, Protocol

from minibroker.client.aborted import AbortedFilter
from minibroker.errors import Error
from minibroker.log.batches import Batch, batches
from minibroker.log.records import Record
from minibroker.protocol.framing import decode_response, encode_request
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.describe_producers import DescribeProducersRequest
from minibroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.list_transactions import ListTransactionsRequest
from minibroker.protocol.messages.offset_fetch import OffsetFetchRequest
from minibroker.stored.group_offsets import OffsetCommitKey, OffsetCommitValue
from minibroker.stored.producers import ProducerSnapshot
from minibroker.stored.transactions import TransactionLogKey, TransactionLogValue
from tests.broker.handlers.transactional import Transactional, fetched
from tests.differential.kafka import Kafka
from tests.differential.wire import ANSWER, CORRELATION_ID, Side
from tests.interop.broker import free_ports

TOPIC, PARTITIONS = "orders", 3
SHORT = PARTITIONS - 1  # the partition of the transaction whose time is over as soon as somebody looks
GROUP = 0  # type of a coordinator
# Of every record, long ago: so the first marker, which is of now, begins a segment, and a snapshot is written.
RECORD_MS = 1_700_000_000_000
SECONDS_MAX = 30
# A broker that has just started, or made a topic, says so for a while; so does one that still writes markers.
NOT_YET = (
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.LEADER_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
    Error.NOT_ENOUGH_REPLICAS,
    Error.CONCURRENT_TRANSACTIONS,
)


class Asked(Protocol):
    """A broker that answers."""

    def ask(self, request: Request, version: int) -> Any: ...

    def now_ms(self) -> int: ...

    def pass_ms(self, wait_ms: int) -> None: ...


class Wire:
    """A broker behind an address."""

    def __init__(self, address: str):
        self._side = Side(address)

    def ask(self, request: Request, version: int) -> Any:
        self._side.send(b"".join(encode_request(request, version, CORRELATION_ID, "test"))[4:])
        outcome = self._side.receive()
        assert outcome.kind == ANSWER, f"{type(request).__name__} {version}: {outcome.kind}"
        return decode_response(outcome.frame, request.api, version)[1]

    def now_ms(self) -> int:
        return RECORD_MS

    def pass_ms(self, wait_ms: int) -> None:
        time.sleep(wait_ms / 1000)

    def close(self) -> None:
        self._side.close()


def until(broker: Asked, is_so: Callable[[], bool]) -> None:
    """Ask until something is so."""
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline
        broker.pass_ms(20)


def insist(broker: Asked, ask: Callable[[], Error]) -> None:
    """Ask until the broker is ready for it; it has to say yes then."""
    found = [Error.NONE]

    def is_over() -> bool:
        found[0] = Error(ask())
        return found[0] not in NOT_YET

    until(broker, is_over)
    assert found[0] is Error.NONE


def wait_until_ready(broker: Asked, names: list[str]) -> None:
    """Wait until a broker has read what it coordinates, and leads what it has."""
    insist(broker, lambda: described(broker, names[0])["error"])
    insist(broker, lambda: offset_of(broker, names[0])[0])
    insist(broker, lambda: fetched(broker, TOPIC, 0, 0, 0).error_code)


# States


class Kind(NamedTuple):
    """What becomes of a transaction."""

    ends: bool | None  # committed, aborted, or left open
    is_held: bool = False  # its markers are


KINDS = {
    "committed": Kind(True),
    "aborted": Kind(False),
    "open": Kind(None),
    "left": Kind(None),
    "short": Kind(None),
    "held.commit": Kind(True, is_held=True),
    "held.abort": Kind(False, is_held=True),
}
STATES = {
    "committed": "CompleteCommit",
    "aborted": "CompleteAbort",
    "open": "Ongoing",
    "left": "Ongoing",
    "held.commit": "PrepareCommit",
    "held.abort": "PrepareAbort",
    "new": "Empty",
}


def make_topic(broker: Asked) -> None:
    """Make a topic that keeps records however old they are."""
    keeps = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name="retention.ms", value="-1")
    topic = CreateTopicsRequest.CreatableTopic(
        name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[keeps]
    )
    broker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False), 5)


def protocols(level: int) -> dict[str, bool]:
    """Return a letter for each protocol that a broker with a level of transaction.version speaks; is it v2?"""
    return {"c": False} if level < 2 else {"c": False, "v": True}


def play(broker: Asked, hold: Callable[[], None], *, level: int) -> dict[str, Transactional]:
    """Bring about every state in each protocol; return the producers."""
    producers: dict[str, Transactional] = {}
    for letter, is_v2 in protocols(level).items():
        for kind in (*KINDS, "new"):
            producers[f"{letter}.{kind}"] = begin(broker, f"{letter}.{kind}", is_v2=is_v2)
    for name, producer in producers.items():
        letter, _, kind = name.partition(".")
        if kind != "new":
            write(broker, producer)
            ended = KINDS[kind]
            if ended.ends is not None and not ended.is_held:
                end(broker, producer, commit=ended.ends)
                wait_for_state(broker, name, STATES[kind])
    hold()
    for name, producer in producers.items():
        ended = KINDS.get(name.partition(".")[2], Kind(None))
        if ended.is_held:
            assert ended.ends is not None
            end(broker, producer, commit=ended.ends)
    return producers


def begin(broker: Asked, name: str, *, is_v2: bool) -> Transactional:
    producer = Transactional(broker, name, is_v2=is_v2)  # type: ignore[arg-type]
    insist(broker, lambda: producer.find().error_code)
    timeout_ms = 1 if name.endswith("short") else 600_000
    insist(broker, lambda: producer.init(timeout_ms))
    group = FindCoordinatorRequest(coordinator_keys=[f"g.{name}"], key_type=GROUP)
    insist(broker, lambda: broker.ask(group, 4).coordinators[0].error_code)
    return producer


def write(broker: Asked, producer: Transactional) -> None:
    """Write records to two partitions and offsets of a group; where time is short, to a partition of its own."""
    places = (SHORT,) if producer.name.endswith("short") else (0, 1)
    group = f"g.{producer.name}"
    for number in places:
        if not producer.is_v2:
            insist(broker, lambda: producer.add((TOPIC, number))[TOPIC, number])  # noqa: B023
        for value in (b"first", b"second"):
            data = producer.name.encode() + b" " + value
            insist(broker, lambda: producer.produce(TOPIC, data, number))  # noqa: B023
    if SHORT in places:
        return
    if not producer.is_v2:
        insist(broker, lambda: producer.add_offsets(group))
    version = 5 if producer.is_v2 else 3
    insist(broker, lambda: producer.commit_offset(TOPIC, len(producer.name), version=version, group=group))


def end(broker: Asked, producer: Transactional, *, commit: bool) -> None:
    insist(broker, lambda: producer.end(commit=commit))


def wait_for_state(broker: Asked, name: str, state: str) -> None:
    until(broker, lambda: described(broker, name)["state"] == state)


# What a broker says


def facts(broker: Asked, names: list[str]) -> dict[str, Any]:
    """Return all that a broker says of transactions, producers, records and offsets."""
    return {
        "described": {name: described(broker, name) for name in names},
        "listed": {name: state for name, state in listed(broker).items() if name in names},
        "producers": [producers_of(broker, number) for number in range(SHORT)],
        "read committed": [read(broker, number, 1) for number in range(SHORT)],
        "read uncommitted": [read(broker, number, 0) for number in range(SHORT)],
        "offsets": {name: offset_of(broker, name) for name in names},
        "stable": {name: offset_of(broker, name, require_stable=True) for name in names},
    }


def described(broker: Asked, name: str) -> dict[str, Any]:
    answer = broker.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states[0]
    return {
        "error": Error(answer.error_code),
        "state": answer.transaction_state,
        "timeout_ms": answer.transaction_timeout_ms,
        # Of one that has not begun, Kafka 3.9 shows when the last did, until it has read its log again.
        "start_ms": answer.transaction_start_time_ms if answer.transaction_state != "Empty" else None,
        "producer": (answer.producer_id, answer.producer_epoch),
        "partitions": sorted((topic.topic, number) for topic in answer.topics for number in topic.partitions),
    }


def listed(broker: Asked) -> dict[str, str]:
    answer = broker.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 1)
    assert answer.error_code == Error.NONE
    return {each.transactional_id: each.transaction_state for each in answer.transaction_states}


def producers_of(broker: Asked, number: int) -> list[tuple[int, ...]]:
    topic = DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[number])
    answer = broker.ask(DescribeProducersRequest(topics=[topic]), 0).topics[0].partitions[0]
    assert answer.error_code == Error.NONE
    return sorted(
        (
            *(each.producer_id, each.producer_epoch, each.last_sequence, each.last_timestamp),
            *(each.coordinator_epoch, each.current_txn_start_offset),
        )
        for each in answer.active_producers
    )


def read(broker: Asked, number: int, isolation_level: int) -> dict[str, Any]:
    """Return what a consumer gets: where that ends, what of it is of aborted transactions, offsets and values."""
    offset, answers = 0, [fetched(broker, TOPIC, number, 0, isolation_level)]
    records: list[tuple[int, bytes]] = []
    while found := list(batches(answers[-1].records or b"")):
        aborted = answers[-1].aborted_transactions or ()
        hidden = AbortedFilter([(each.first_offset, each.producer_id) for each in aborted])
        records += [
            (record.offset, bytes(record.value or b""))
            for batch in found
            if not batch.is_control and not (isolation_level and hidden.hides(batch))
            for record in batch.records()
        ]
        offset = found[-1].last_offset + 1
        answers.append(fetched(broker, TOPIC, number, offset, isolation_level))
    return {
        "errors": {answer.error_code for answer in answers},
        "high watermark": answers[-1].high_watermark,
        "last stable offset": answers[-1].last_stable_offset,
        "aborted": [
            [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()] for answer in answers
        ],
        "records": records,
    }


def offset_of(broker: Asked, name: str, *, require_stable: bool = False) -> tuple[Error, int]:
    """Return what the group of a producer has committed, -1 if nothing."""
    Group = OffsetFetchRequest.OffsetFetchRequestGroup
    topic = Group.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    request = OffsetFetchRequest(groups=[Group(group_id=f"g.{name}", topics=[topic])], require_stable=require_stable)
    answer = broker.ask(request, 8).groups[0]
    if answer.error_code:
        return Error(answer.error_code), -1
    row = answer.topics[0].partitions[0]
    return Error(row.error_code), row.committed_offset


# What is in the files, but for times and what is made by chance

BASE_BYTES, CRC_AT, TIMES_AT = 61, slice(17, 21), slice(27, 43)  # of a batch


def files_of(directory: Path) -> list[str]:
    """Return the files of a log that are determined by what was appended."""
    return sorted(path.name for path in directory.iterdir() if path.suffix in (".log", ".txnindex", ".snapshot"))


def contents(path: Path) -> list[Any]:
    """Return what a file holds, without times."""
    data = path.read_bytes()
    if path.suffix == ".log":
        return [without_times(batch) for batch in batches(data, strict=True)]
    if path.suffix == ".snapshot":
        entries = ProducerSnapshot.decode(data[2:], int.from_bytes(data[:2], "big")).producer_entries
        for entry in entries:
            entry.timestamp = 0
        return sorted(map(repr, entries))
    return [data]


def without_times(batch: Batch) -> tuple[bytes, list[tuple[bytes | None, bytes | None]]]:
    """Return the head of a batch and its records, without times and checksum, and without ids of topics."""
    head = bytearray(batch.view[batch.position : batch.position + BASE_BYTES])
    head[CRC_AT], head[TIMES_AT] = bytes(4), bytes(16)
    return bytes(head), [
        (None if record.key is None else bytes(record.key), _without_times(record)) for record in batch.records()
    ]


def _without_times(record: Record) -> bytes | None:
    key, value = record.key, record.value
    if value is None or key is None or key[:2] != OffsetCommitKey.type_number.to_bytes(2, "big"):
        return None if value is None else bytes(value)
    committed = OffsetCommitValue.decode_stored(bytes(value))
    committed.commit_timestamp, committed.topic_id = 0, bytes(16)
    return committed.encode_stored(int.from_bytes(value[:2], "big"))


def transitions(directory: Path) -> dict[str, list[bytes]]:
    """Return what was written of each transactional id, without times; but of those whose time is short."""
    found: dict[str, list[bytes]] = {}
    for path in sorted(directory.glob("*.log")):
        for batch in batches(path.read_bytes(), strict=True):
            assert (batch.count, batch.attributes, batch.producer_id, batch.base_sequence) == (1, 0, -1, -1)
            for record in batch.records():
                name = TransactionLogKey.decode_stored(bytes(record.key or b"")).transactional_id
                if not name.endswith("short"):
                    found.setdefault(name, []).append(_transition(bytes(record.value or b"")))
    return found


def _transition(data: bytes) -> bytes:
    value, version = TransactionLogValue.decode_stored(data), int.from_bytes(data[:2], "big")
    assert value.encode_stored(version) == data
    value.transaction_last_update_timestamp_ms = 0
    value.transaction_start_timestamp_ms = min(value.transaction_start_timestamp_ms, 0)
    if value.transaction_partitions:  # Kafka's are in the order of a hash table
        value.transaction_partitions.sort(key=lambda each: each.topic)
        for each in value.transaction_partitions:
            each.partition_ids.sort()
    return value.encode_stored(version)


# What holds markers back


class Gate:
    """A port in front of another: as long as the gate is closed, what comes in waits."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._target = 0  # the port behind
        self._opened = Event()
        self._opened.set()
        self.close, self.open = self._opened.clear, self._opened.set
        Thread(target=self._accept, daemon=True).start()

    def stand_before(self, kafka: Kafka) -> None:
        """Have a Kafka that has not started yet send to itself through this gate; clients do not."""
        client = kafka.address.rpartition(":")[2]
        controller = kafka.settings["listeners"].rpartition(":")[2]
        (self._target,) = free_ports(1)
        listeners = f"CLIENT://127.0.0.1:{client},PLAINTEXT://127.0.0.1:"
        kafka.settings |= {
            "listeners": f"{listeners}{self._target},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"{listeners}{self.port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CLIENT:PLAINTEXT",
        }

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                Thread(target=self._serve, args=self._server.accept()[:1], daemon=True).start()

    def _serve(self, outer: socket.socket) -> None:
        self._opened.wait()
        with outer, suppress(OSError), socket.create_connection(("127.0.0.1", self._target)) as inner:
            Thread(target=self._pass, args=(inner, outer), daemon=True).start()
            self._pass(outer, inner)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._opened.wait()
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.open()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@contextmanager
def connected(address: str) -> Iterator[Wire]:
    wire = Wire(address)
    try:
        yield wire
    finally:
        wire.close()

"""What is done with transactions: producers that commit one after the other, each on its own partition.

    raw         frames made by hand, so that what is measured is the broker: classic, and v2 as of Kafka's newer clients
    librdkafka  confluent-kafka, which is classic; of one producer, with linger.ms 0

What must hold: a load fails unless its partitions have grown by exactly the records and markers of what was committed.
A producer that is told CONCURRENT_TRANSACTIONS asks again after 20 ms, as Kafka's clients do; in v2 the broker waits.
"""

from __future__ import annotations

import heapq
import selectors
import socket
import statistics
import time
from collections.abc import Callable, Generator
from itertools import count
from struct import Struct as Layout
from typing import Any

from bench.broker.brokers import Broker
from bench.broker.raw import LATEST, Raw
from bench.broker.rounds import Figures
from minibroker.log.batches import crc32c
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.framing import decode_response, encode_request
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from minibroker.protocol.messages.end_txn import EndTxnRequest
from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from minibroker.protocol.messages.init_producer_id import InitProducerIdRequest
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest
from minibroker.protocol.messages.produce import ProduceRequest

NUMBERS = count()
RECORD_BYTES = 100
TRANSACTION = 1  # type of a coordinator
NOT_YET = (3, 5, 6, 14, 15, 16)  # a coordinator, or a topic, that is just coming to be
ASK_AGAIN = (51, *NOT_YET)  # CONCURRENT_TRANSACTIONS
RETRY_SECONDS = 0.02
POLL_SECONDS = 0.01  # while nothing is measured yet
READY_SECONDS_MAX = 60.0
CRC, PRODUCER = Layout(">I"), Layout(">qhi")  # in a batch: the checksum; producer id, epoch and first sequence
CRC_AT, COVERED_AT, PRODUCER_AT = 17, 21, 43

Step = tuple[int, bytes] | float  # a connection and a frame, or how long to wait


class Producer:
    """One with a transactional id; it yields what it wants sent, and is sent what was answered."""

    def __init__(self, name: str, topic: str, number: int, records: int, *, is_v2: bool):
        self.name = name
        self.topic = topic
        self.number = number  # of its partition
        self.records = records
        self.is_v2 = is_v2
        self.id = self.epoch = -1
        self.sequence = 0
        self.committed = self.waited = 0
        self.took: list[float] = []
        now_ms = int(time.time() * 1000)
        self._batch = bytearray(
            build_batch(2, [Record(None, bytes(RECORD_BYTES), (), now_ms, each) for each in range(records)],
                        producer_id=0, producer_epoch=0, base_sequence=0, transactional=True)
        )  # fmt: skip

    def begin(self, raw: Raw) -> str:
        """Get an id and epoch; return where the coordinator is."""
        find = frame(FindCoordinatorRequest(coordinator_keys=[self.name], key_type=TRANSACTION), 4)
        found = ready(lambda: raw.send(find).coordinators[0], f"the coordinator of {self.name}")
        address = f"{found.host}:{found.port}"
        init = frame(InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000), 4)
        with Raw(address) as coordinator:
            given = ready(lambda: coordinator.send(init), f"a producer id for {self.name}")
        self.id, self.epoch = given.producer_id, given.producer_epoch
        return address

    def transactions(self, coordinator: int, leader: int) -> Generator[Step, Any, None]:
        """Commit one after the other."""
        while True:
            start = time.perf_counter()
            if not self.is_v2:
                yield from self._added(coordinator)
            yield from self._produced(leader)
            answer = yield coordinator, self._end()
            self._check("EndTxn", answer.error_code)
            if self.is_v2:
                self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
            else:
                self.sequence += self.records
            self.committed += 1
            self.took.append(time.perf_counter() - start)

    def _added(self, coordinator: int) -> Generator[Step, Any, None]:
        request = frame(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.topic, partitions=[self.number])],
            ),
            3,
        )
        code = ASK_AGAIN[0]
        while code in ASK_AGAIN:
            answer = yield coordinator, request
            code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            yield from self._waits(code)
        self._check("AddPartitionsToTxn", code)

    def _produced(self, leader: int) -> Generator[Step, Any, None]:
        request, code = self._produce(), ASK_AGAIN[0]
        while code in ASK_AGAIN:
            answer = yield leader, request
            code = answer.responses[0].partition_responses[0].error_code
            yield from self._waits(code)
        self._check("Produce", code)

    def _waits(self, code: int) -> Generator[Step, Any, None]:
        if code in ASK_AGAIN:
            self.waited += 1
            yield RETRY_SECONDS

    def _produce(self) -> bytes:
        batch = self._batch
        PRODUCER.pack_into(batch, PRODUCER_AT, self.id, self.epoch, self.sequence)
        CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[COVERED_AT:]))
        Topic = ProduceRequest.TopicProduceData
        rows = [Topic.PartitionProduceData(index=self.number, records=bytes(batch))]
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[Topic(name=self.topic, partition_data=rows)],
        )
        return frame(request, 12 if self.is_v2 else 11)

    def _end(self) -> bytes:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=True
        )
        return frame(request, 5 if self.is_v2 else 4)

    def _check(self, what: str, code: int) -> None:
        if code:
            raise RuntimeError(f"{what} of {self.name} was answered {code}")


def frame(request: Request, version: int) -> bytes:
    return b"".join(encode_request(request, version, 0, "bench"))


class Connection:
    """A socket that one request at a time is sent over."""

    def __init__(self, address: str):
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._api = (0, 0)
        self._received = b""

    def send(self, data: bytes) -> None:
        self._api = int.from_bytes(data[4:6], "big"), int.from_bytes(data[6:8], "big")
        self.socket.sendall(data)

    def receive(self) -> Any:
        """Return the answer; None if it is not all there."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("closed by the broker")
        self._received += data
        if len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            return None
        data, self._received = self._received[4:], b""
        return decode_response(data, *self._api)[1]


def raw(broker: Broker, producers: int, records: int, seconds: float, *, is_v2: bool) -> Figures:
    """Let producers commit for a while, each one transaction after the other and at least one."""
    topic = f"transactions-{next(NUMBERS)}"
    broker.create_topic(topic, producers)
    made = [Producer(f"{topic}-{each}", topic, each, records, is_v2=is_v2) for each in range(producers)]
    # In a cluster the brokers lead the partitions in turn, the first one the first (Topics.create).
    addresses = broker.address.split(",")
    leaders = [addresses[each % len(addresses)] for each in range(producers)]
    with Raw(broker.address) as asked, selectors.DefaultSelector() as selector:
        coordinators = [producer.begin(asked) for producer in made]
        connections: list[Connection] = []
        cycles: list[Generator[Step, Any, None]] = []
        due: list[tuple[float, int]] = []  # when whose wait is over

        def go_on(index: int, step: Step) -> None:
            if isinstance(step, tuple):
                connections[step[0]].send(step[1])
            else:
                heapq.heappush(due, (time.perf_counter() + step, index))

        for index, (producer, coordinator, leader) in enumerate(zip(made, coordinators, leaders)):
            with Raw(leader) as led:
                end_of(led, topic, producer.number)
            first = len(connections)
            for address in dict.fromkeys((coordinator, leader)):
                connections.append(Connection(address))
                selector.register(connections[-1].socket, selectors.EVENT_READ, (index, connections[-1]))
            cycles.append(producer.transactions(first, len(connections) - 1))
        cpu, start = broker.cpu_seconds(), time.perf_counter()
        end, give_up = start + seconds, start + READY_SECONDS_MAX
        for index, cycle in enumerate(cycles):
            go_on(index, next(cycle))
        while (now := time.perf_counter()) < end or not (all(each.committed for each in made) or now > give_up):
            while due and due[0][0] <= now:
                index = heapq.heappop(due)[1]
                go_on(index, next(cycles[index]))
            for key, _ in selector.select(max((due[0][0] if due else end) - time.perf_counter(), 0.001)):
                index, connection = key.data
                answer = connection.receive()
                if answer is not None:
                    go_on(index, cycles[index].send(answer))
        took, cpu = time.perf_counter() - start, broker.cpu_seconds() - cpu
        done = sum(producer.committed for producer in made)
        for connection in connections:
            connection.socket.close()
        for producer, leader in zip(made, leaders):
            check(leader, topic, producer.number, producer.committed, records)
    all_took = [each for producer in made for each in producer.took]
    return {
        "transactions_s": done / took,
        "p50_ms": statistics.median(all_took) * 1e3,
        "cpu_us": cpu / done * 1e6,
        "told_to_wait": sum(producer.waited for producer in made) / done,
    }


def ready(ask: Callable[[], Any], what: str) -> Any:
    """Return an answer without an error; ask again as long as what it is about is just coming to be."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while (found := ask()).error_code in NOT_YET:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: error {found.error_code} for {READY_SECONDS_MAX:g} s")
        time.sleep(POLL_SECONDS)
    if found.error_code:
        raise RuntimeError(f"{what}: error {found.error_code}")
    return found


def end_of(leader: Raw, topic: str, number: int) -> int:
    """Return where a partition ends, as soon as it is led there."""
    Topic = ListOffsetsRequest.ListOffsetsTopic
    rows = [Topic.ListOffsetsPartition(partition_index=number, timestamp=LATEST)]
    request = frame(ListOffsetsRequest(replica_id=-1, topics=[Topic(name=topic, partitions=rows)]), 5)
    found = ready(lambda: leader.send(request).topics[0].partitions[0], f"the leader of {topic}-{number}")
    return int(found.offset)


def check(address: str, topic: str, number: int, transactions: int, records: int) -> None:
    """Raise unless a partition has the records and markers of its transactions, and at most one more of each."""
    with Raw(address) as leader:
        end = end_of(leader, topic, number)
    least = transactions * (records + 1) - 1  # the last marker may be under way
    if not least <= end <= least + records + 2:
        raise RuntimeError(f"{topic}-{number} ends at {end} after {transactions} transactions of {records} records")


def librdkafka(broker: Broker, records: int, seconds: float) -> Figures:
    """Let one producer commit for a while."""
    from confluent_kafka import Producer as Confluent

    topic = f"transactions-{next(NUMBERS)}"
    broker.create_topic(topic, 1)
    producer = Confluent(
        {"bootstrap.servers": broker.address, "transactional.id": topic, "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(READY_SECONDS_MAX)
    value, took = bytes(RECORD_BYTES), []
    cpu, begun = broker.cpu_seconds(), time.perf_counter()
    while (start := time.perf_counter()) < begun + seconds:
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, value, partition=0)
        producer.commit_transaction(READY_SECONDS_MAX)
        took.append(time.perf_counter() - start)
    passed, cpu = time.perf_counter() - begun, broker.cpu_seconds() - cpu
    check(broker.address, topic, 0, len(took), records)
    return {
        "transactions_s": len(took) / passed,
        "p50_ms": statistics.median(took) * 1e3,
        "cpu_us": cpu / len(took) * 1e6,
    }

"""Produce: what is answered for each partition, at once, later, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.handlers.produce import ADMIN_CLIENT, AT_ONCE_MAX
from minibroker.errors import Error, KafkaError
from minibroker.log.build import build_batch
from minibroker.log.compression import NONE, ZSTD
from minibroker.log.records import Record
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.simulation.loop import START_MS
from minibroker.stored.topics import PartitionChangeRecord
from tests.broker.virtual_broker import VirtualBroker
from tests.server.running import values_of

Topic = ProduceRequest.TopicProduceData
OK, UNKNOWN = Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION
NEWEST, NAMES_LAST = 13, 12
OTHER_ID = bytes(15) + b"1"


def batch(*values: bytes, magic: int = 2, codec: int = NONE, time_ms: int = START_MS, **more: Any) -> bytes:
    return build_batch(
        magic, [Record(b"k", value, (), time_ms, index) for index, value in enumerate(values)], codec=codec, **more
    )


def request(
    *wanted: tuple[str | bytes, dict[int, bytes | None]], acks: int = 1, timeout_ms: int = 1000
) -> ProduceRequest:
    """Ask for records to be appended: topic, or its id, and what each partition gets."""
    topics = [
        Topic(
            partition_data=[
                Topic.PartitionProduceData(index=index, records=records) for index, records in rows.items()
            ],
            **({"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}),
        )
        for topic, rows in wanted
    ]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)


def rows_of(answer: Any) -> dict[tuple[str, int], Any]:
    return {(topic.name, each.index): each for topic in answer.responses for each in topic.partition_responses}


def one(broker: VirtualBroker, records: bytes | None, *, version: int = 9, topic: str = "t", **more: Any) -> Any:
    """Return what is answered for the first partition of a topic."""
    answer = broker.ask(request((topic, {0: records}), **more), version)
    return rows_of(answer)[topic, 0]


@pytest.fixture
def broker(broker: VirtualBroker) -> VirtualBroker:
    broker.node.create_topic("t", 2)
    return broker


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_what_is_appended_is_answered_with_its_place(broker: VirtualBroker, version: int) -> None:
    magic = 2 if version >= 3 else 1
    topic: Any = "t" if version <= NAMES_LAST else broker.node.image.topics["t"].id
    for count in range(2):
        answer = broker.ask(request((topic, {0: batch(b"a", b"b", magic=magic)})), version)
        (told,) = answer.responses
        assert (told.name, told.topic_id) == (("t", bytes(16)) if version <= NAMES_LAST else ("", topic))
        (row,) = told.partition_responses
        assert (row.index, row.error_code, row.base_offset, row.log_append_time_ms) == (0, OK, 2 * count, -1)
        assert row.log_start_offset == (0 if version >= 5 else -1)
    assert values_of(broker.node, "t") == [b"a", b"b"] * 2


def test_the_time_of_the_append_is_told_where_it_counts(broker: VirtualBroker) -> None:
    broker.node.create_topic("u", 1, {"message.timestamp.type": "LogAppendTime"})
    broker.pass_ms(50)
    row = one(broker, batch(b"a"), topic="u")
    assert START_MS + 50 <= row.log_append_time_ms <= broker.node.clock.now_ms()
    broker.node.replicas["t", 0].append(bytearray(batch(b"a", b"b")), now_ms=START_MS, steady_ms=0)
    broker.node.replicas["t", 0].log.advance_log_start(1)
    assert one(broker, batch(b"a")).log_start_offset == 1


ZSTD_BATCH, PLAIN = batch(b"a", codec=ZSTD), batch(b"a")
SHAPES: dict[str, tuple[bytes | None, int, Error, str | None]] = {  # and version, error and message
    "nothing": (None, 9, Error.INVALID_RECORD, None),
    "nothing, long ago": (None, 2, Error.INVALID_RECORD, None),
    "no byte": (b"", 9, Error.INVALID_RECORD, None),
    "the beginning": (PLAIN[:11], 9, Error.INVALID_RECORD, None),
    "all but the last byte": (PLAIN[:-1], 9, Error.INVALID_RECORD, None),
    "one batch": (PLAIN, 9, OK, None),
    "one batch and the beginning of another": (PLAIN + PLAIN[:-1], 9, OK, None),
    "two batches": (PLAIN + PLAIN, 9, Error.INVALID_RECORD, None),
    "two batches, long ago": (batch(b"a", magic=1) * 2, 2, OK, None),
    "an old message": (batch(b"a", magic=1), 3, Error.INVALID_RECORD, None),
    "a message of the first format": (batch(b"a", magic=0, time_ms=-1), 2, OK, None),
    "zstd": (ZSTD_BATCH, 7, OK, None),
    "zstd, too early": (ZSTD_BATCH, 6, Error.UNSUPPORTED_COMPRESSION_TYPE, None),
    "a batch that is too short": (
        PLAIN[:8] + (13).to_bytes(4, "big") + PLAIN[12:],
        9,
        Error.CORRUPT_MESSAGE,
        "Record size 13 is less than the minimum record overhead (14)",
    ),
    "a batch of the shortest size": (
        PLAIN[:8] + (14).to_bytes(4, "big") + PLAIN[12:26],
        9,
        Error.CORRUPT_MESSAGE,
        None,
    ),
    "a batch of a negative size": (
        PLAIN[:8] + (-1).to_bytes(4, "big", signed=True) + PLAIN[12:],
        9,
        Error.CORRUPT_MESSAGE,
        "Record size -1 is less than the minimum record overhead (14)",
    ),
    "an unknown format": (
        PLAIN[:16] + b"\3" + PLAIN[17:],
        9,
        Error.CORRUPT_MESSAGE,
        "Invalid magic found in record: 3",
    ),
    "an unknown format behind a batch": (
        PLAIN + PLAIN[:16] + b"\3" + PLAIN[17:],
        9,
        Error.CORRUPT_MESSAGE,
        "Invalid magic found in record: 3",
    ),
    "a wrong checksum": (PLAIN[:-1] + b"\xff", 9, Error.CORRUPT_MESSAGE, None),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_partition_gets_one_batch_of_the_format_of_the_day(broker: VirtualBroker, name: str) -> None:
    records, version, code, message = SHAPES[name]
    row = one(broker, records, version=version)
    assert row.error_code == code
    if message is not None:
        assert row.error_message == message
    assert (row.base_offset >= 0) == (code == OK) == (broker.node.replicas["t", 0].log.log_end_offset > 0)


def test_records_that_are_refused_are_named(broker: VirtualBroker) -> None:
    records = [Record(b"k", b"v", (), START_MS + late * 86_400_000, index) for index, late in enumerate((0, 2, 0, 2))]
    row = one(broker, build_batch(2, records), version=8)
    assert row.error_code == Error.INVALID_TIMESTAMP
    assert [each.batch_index for each in row.record_errors] == [1, 3]
    assert all(each.batch_index_error_message for each in row.record_errors)
    assert row.error_message
    assert row.log_start_offset == 0, "with that error it is told where the log begins"
    assert one(broker, PLAIN[:-1] + b"\xff").log_start_offset == -1


def test_each_partition_fails_for_itself(broker: VirtualBroker) -> None:
    answer = broker.ask(request(("t", {0: PLAIN, 7: PLAIN}), ("absent", {0: PLAIN}), ("t", {1: PLAIN})), 9)
    assert [topic.name for topic in answer.responses] == ["t", "absent"], "a topic that comes twice is answered once"
    assert {key: each.error_code for key, each in rows_of(answer).items()} == {
        ("t", 0): OK,
        ("t", 7): UNKNOWN,
        ("absent", 0): UNKNOWN,
        ("t", 1): OK,
    }
    unknown = broker.ask(request((OTHER_ID, {0: PLAIN})), NEWEST)
    ((row,),) = (topic.partition_responses for topic in unknown.responses)
    assert row.error_code == Error.UNKNOWN_TOPIC_ID


def twice(count: int) -> ProduceRequest:
    """Ask for as many partitions, the first of which is named twice."""
    rows = [Topic.PartitionProduceData(index=index, records=batch(b"first")) for index in range(count)]
    rows.append(Topic.PartitionProduceData(index=0, records=batch(b"second")))
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[Topic(name="many", partition_data=rows)])


@pytest.mark.parametrize("count", [2, AT_ONCE_MAX + 20])
def test_of_a_partition_that_is_named_twice_the_last_counts(broker: VirtualBroker, count: int) -> None:
    broker.run(broker.node.create_topic, "many", count)
    rows = rows_of(broker.ask(twice(count), 9))
    assert len(rows) == count
    assert {(each.error_code, each.base_offset) for each in rows.values()} == {(OK, 0)}
    assert values_of(broker.node, "many") == [b"second"]
    assert {bytes(*values_of(broker.node, "many", index)) for index in range(1, count)} == {b"first"}


def test_acks_are_three(broker: VirtualBroker) -> None:
    for acks, code in ((2, Error.INVALID_REQUIRED_ACKS), (-2, Error.INVALID_REQUIRED_ACKS), (1, OK), (-1, OK)):
        assert one(broker, PLAIN, acks=acks).error_code == code
    assert broker.node.replicas["t", 0].log.log_end_offset == 2


@pytest.mark.parametrize("count", [1, AT_ONCE_MAX + 20])
def test_who_wants_no_answer_gets_none_and_learns_of_an_error_by_the_end(broker: VirtualBroker, count: int) -> None:
    broker.run(broker.node.create_topic, "many", count)
    connection = broker.connect().connection
    for index, is_good in ((0, True), (count, False)):
        wanted = request(("many", dict.fromkeys(range(index, index + count), PLAIN)), acks=0)
        assert broker.ask(wanted, 9, by=connection) is None
        assert connection.is_closing == (not is_good)
    assert broker.node.replicas["many", 0].log.log_end_offset == 1


def test_internal_topics_are_for_the_admin_client(broker: VirtualBroker) -> None:
    broker.run(broker.node.create_topic, "__transaction_state", 1)
    wanted = request(("__transaction_state", {0: PLAIN}))
    for client, code in (("test", Error.INVALID_TOPIC_EXCEPTION), (ADMIN_CLIENT, OK)):
        (row,) = rows_of(broker.ask(wanted, 9, client_id=client)).values()
        assert row.error_code == code


def test_many_partitions_are_answered_as_a_few(broker: VirtualBroker) -> None:
    counts = {"a": AT_ONCE_MAX + 30, "b": 2, "c": AT_ONCE_MAX}
    for name, count in counts.items():
        broker.run(broker.node.create_topic, name, count)
    wanted = [(name, dict.fromkeys(range(count + 1), PLAIN)) for name, count in counts.items()]
    for acks in (1, -1):
        answer = broker.ask(request(*wanted, ("empty", {}), acks=acks), 10)
        assert [topic.name for topic in answer.responses] == ["a", "b", "c", "empty"]
        found = rows_of(answer)
        assert found.keys() == {(name, index) for name, count in counts.items() for index in range(count + 1)}
        for (name, index), row in found.items():
            assert row.error_code == (OK if index < counts[name] else UNKNOWN)
            assert row.base_offset == ((0 if acks == 1 else 1) if index < counts[name] else -1)


@pytest.mark.parametrize("count", [1, AT_ONCE_MAX + 20])
def test_a_transaction_is_refused_as_a_whole(broker: VirtualBroker, count: int) -> None:
    broker.run(broker.node.create_topic, "many", count)
    rows: dict[int, bytes | None] = dict.fromkeys(range(count), PLAIN)
    rows[count - 1] = batch(b"a", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    found = rows_of(broker.ask(request(("many", rows), ("t", {0: None, 1: PLAIN})), 9))
    assert {each.error_code for each in found.values()} == {Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    assert len(found) == count + 2


# Others lead, and disks fail


@pytest.mark.parametrize("version", [9, 10])
def test_who_leads_now_is_told_with_the_address(broker: VirtualBroker, version: int) -> None:
    replica = broker.node.replicas["t", 0]
    replica.leader_id = 77
    answer = broker.ask(request(("t", {0: PLAIN, 1: PLAIN})), version)
    first, second = answer.responses[0].partition_responses
    assert (first.error_code, second.error_code) == (Error.NOT_LEADER_OR_FOLLOWER, OK)
    leader = broker.node.image.topics["t"].partitions[0]
    hints = [(each.current_leader.leader_id, each.current_leader.leader_epoch) for each in (first, second)]
    assert hints == ([(leader.leader, leader.leader_epoch), (-1, -1)] if version >= 10 else [(-1, -1)] * 2)
    endpoints = [(each.node_id, each.host, each.port) for each in answer.node_endpoints]
    assert endpoints == ([(1, *broker.connection.local_address)] if version >= 10 else [])
    replica.leader_id = 1
    fine = broker.ask(request(("t", {0: PLAIN}), ("absent", {0: PLAIN})), version)
    assert fine.node_endpoints == []


@pytest.mark.parametrize(("version", "code"), [(3, Error.NOT_LEADER_OR_FOLLOWER), (4, Error.KAFKA_STORAGE_ERROR)])
def test_a_failed_disk_is_told_to_who_knows_that_it_can(broker: VirtualBroker, version: int, code: Error) -> None:
    broker.node.replicas["t", 0].log.offline = KafkaError(Error.KAFKA_STORAGE_ERROR, "gone")
    assert one(broker, PLAIN, version=version).error_code == code
    broker.node.replicas["t", 0].log.offline = None


# With acks -1


def change(broker: VirtualBroker, **changed: Any) -> None:
    """Change the first partition of a topic as the controller of a cluster would."""
    topic = broker.node.image.topics["t"]
    broker.run(broker.node.change, [PartitionChangeRecord(topic_id=topic.id, partition_id=0, **changed)])


@pytest.fixture
def followed(broker: VirtualBroker) -> VirtualBroker:
    """Return a broker that waits for a follower, which never comes."""
    change(broker, replicas=[1, 2], isr=[1, 2])
    return broker


def waiting(broker: VirtualBroker, **more: Any) -> Any:
    task = broker.begin(request(("t", {0: PLAIN, 1: PLAIN}), acks=-1, **more), 10)
    broker.pass_ms(10)
    assert not task.done()
    assert broker.node.replicas["t", 0].log.log_end_offset > 0
    return task


def test_who_wants_all_acks_is_answered_when_all_have_it(followed: VirtualBroker) -> None:
    task = waiting(followed)
    change(followed, isr=[1])
    rows = rows_of(followed.wait(task))
    assert {(each.error_code, each.base_offset) for each in rows.values()} == {(OK, 0)}
    assert rows["t", 0].current_leader.leader_id == -1
    assert not followed.node.replicas["t", 0].waiters


def test_who_wants_one_ack_waits_for_nobody(followed: VirtualBroker) -> None:
    assert one(followed, PLAIN).error_code == OK
    assert one(followed, PLAIN).base_offset == 1


def test_a_wait_ends_with_its_time(followed: VirtualBroker) -> None:
    start_ms = followed.node.clock.now_ms()
    rows = rows_of(followed.wait(waiting(followed, timeout_ms=300)))
    assert 300 <= followed.node.clock.now_ms() - start_ms <= 310
    first, second = rows["t", 0], rows["t", 1]
    assert (first.error_code, first.base_offset, first.log_append_time_ms) == (Error.REQUEST_TIMED_OUT, -1, -1)
    assert first.log_start_offset == -1
    assert (second.error_code, second.base_offset, second.log_start_offset) == (OK, 0, 0)
    assert not followed.node.replicas["t", 0].waiters


def test_a_wait_ends_when_another_leads(followed: VirtualBroker) -> None:
    task = waiting(followed)
    change(followed, leader=2)
    answer = followed.wait(task)
    first, second = (rows_of(answer)["t", index] for index in (0, 1))
    assert (first.error_code, first.base_offset) == (Error.NOT_LEADER_OR_FOLLOWER, -1)
    assert (first.current_leader.leader_id, first.current_leader.leader_epoch) == (2, 1)
    assert (second.error_code, second.current_leader.leader_id) == (OK, -1)
    assert answer.node_endpoints == [], "where that broker is nobody knows"


def test_a_wait_ends_when_the_topic_is_deleted(followed: VirtualBroker) -> None:
    task = waiting(followed)
    followed.run(followed.node.change, followed.node.controller.delete_topic(name="t"))
    rows = rows_of(followed.wait(task))
    assert rows["t", 0].error_code == UNKNOWN
    assert rows["t", 0].current_leader.leader_id == -1


def test_many_partitions_wait_together(broker: VirtualBroker) -> None:
    count = AT_ONCE_MAX + 20
    broker.run(broker.node.create_topic, "many", count)
    change(broker, replicas=[1, 2], isr=[1, 2])
    wanted = request(("many", dict.fromkeys(range(count), PLAIN)), ("t", {0: PLAIN}), acks=-1, timeout_ms=300)
    task = broker.begin(wanted, 10)
    broker.pass_ms(10)
    assert not task.done()
    rows = rows_of(broker.wait(task))
    assert {row.error_code for key, row in rows.items() if key != ("t", 0)} == {OK}
    assert rows["t", 0].error_code == Error.REQUEST_TIMED_OUT
    assert len(rows) == count + 1

"""Fetch: what is read, when it is answered, and what is told of a partition that cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.handlers.fetch import AT_ONCE_MAX
from minibroker.errors import Error, KafkaError
from minibroker.log.batches import batches
from minibroker.log.build import build_batch
from minibroker.log.compression import NONE, ZSTD
from minibroker.log.records import Record
from minibroker.parts import RACK_AWARE
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.simulation.loop import START_MS
from minibroker.stored.topics import PartitionChangeRecord
from tests.broker.virtual_broker import VirtualBroker, virtual_broker

Topic = FetchRequest.FetchTopic
OK, UNKNOWN, MOVED = Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NOT_LEADER_OR_FOLLOWER
NEWEST, NAMES_LAST, SESSIONS_SINCE = 18, 12, 7
OTHER_ID = bytes(15) + b"1"
EVERYTHING = 1 << 20


def append(broker: VirtualBroker, *values: bytes, topic: str = "t", partition: int = 0, codec: int = NONE) -> None:
    """Put each value into a batch of its own."""
    for value in values:
        data = build_batch(2, [Record(b"k", value, (), START_MS)], codec=codec)
        broker.run(
            lambda data=data: broker.node.replicas[topic, partition].append(
                bytearray(data), now_ms=START_MS, steady_ms=0
            )
        )


def request(
    *wanted: tuple[str | bytes, int, int],
    wait_ms: int = 0,
    bytes_min: int = 1,
    bytes_max: int = EVERYTHING,
    partition_bytes_max: int = EVERYTHING,
    session: int = 0,
    epoch: int = -1,
    forgotten: tuple[tuple[str, int], ...] = (),
    partition: dict[str, Any] | None = None,
    **more: Any,
) -> FetchRequest:
    """Ask for (topic or its id, partition, offset)."""
    topics = [
        Topic(
            partitions=[
                Topic.FetchPartition(
                    partition=index, fetch_offset=offset, partition_max_bytes=partition_bytes_max, **(partition or {})
                )
            ],
            **({"topic_id": topic} if isinstance(topic, bytes) else {"topic": topic}),
        )
        for topic, index, offset in wanted
    ]
    Forgotten = FetchRequest.ForgottenTopic
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=bytes_min,
        max_bytes=bytes_max,
        session_id=session,
        session_epoch=epoch,
        topics=topics,
        forgotten_topics_data=[Forgotten(topic=topic, partitions=[index]) for topic, index in forgotten],
        **more,
    )


def rows_of(answer: Any) -> dict[tuple[str, int], Any]:
    return {(topic.topic, each.partition_index): each for topic in answer.responses for each in topic.partitions}


def values(row: Any) -> list[bytes]:
    return [bytes(record.value or b"") for each in batches(bytes(row.records or b"")) for record in each.records()]


def one(broker: VirtualBroker, offset: int = 0, *, version: int = 12, index: int = 0, **more: Any) -> Any:
    """Return what is answered for a partition of `t`."""
    return rows_of(broker.ask(request(("t", index, offset), **more), version))["t", index]


def change(broker: VirtualBroker, **changed: Any) -> None:
    """Change the first partition as the controller of a cluster would."""
    topic = broker.node.image.topics["t"]
    broker.run(broker.node.change, [PartitionChangeRecord(topic_id=topic.id, partition_id=0, **changed)])


@pytest.fixture
def broker(broker: VirtualBroker) -> VirtualBroker:
    """Return a broker with three batches in the first partition."""
    broker.node.create_topic("t", 2)
    append(broker, b"a", b"b", b"c")
    return broker


# Reading


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_what_is_stored_is_read_from_where_the_client_asks(broker: VirtualBroker, version: int) -> None:
    topic: Any = "t" if version <= NAMES_LAST else broker.node.image.topics["t"].id
    answer = broker.ask(request((topic, 0, 1)), version)
    (told,) = answer.responses
    assert (told.topic, told.topic_id) == (("t", bytes(16)) if version <= NAMES_LAST else ("", topic))
    (row,) = told.partitions
    assert (row.error_code, row.high_watermark) == (OK, 3)
    assert values(row) == [b"b", b"c"]
    (first, *_) = batches(bytes(row.records))
    assert first.magic == (2 if version >= 4 else 1 if version >= 2 else 0)
    assert row.last_stable_offset == (3 if version >= 4 else -1)
    assert row.log_start_offset == (0 if version >= 5 else -1)
    assert answer.session_id == 0


def test_the_first_batch_comes_whole_whatever_the_limits(broker: VirtualBroker) -> None:
    size_bytes = len(bytes(one(broker).records)) // 3
    for limits in ({"bytes_max": 1}, {"partition_bytes_max": 1}, {"partition_bytes_max": size_bytes}):
        assert values(one(broker, **limits)) == [b"a"]
    assert values(one(broker, partition_bytes_max=2 * size_bytes)) == [b"a", b"b"]
    assert len(bytes(one(broker, version=2, partition_bytes_max=20).records)) == 20, (
        "the oldest got what they asked for"
    )
    append(broker, b"d", partition=1)
    rows = rows_of(broker.ask(request(("t", 0, 0), ("t", 1, 0), bytes_max=1), 12))
    assert [values(rows["t", index]) for index in (0, 1)] == [[b"a"], []]
    rows = rows_of(broker.ask(request(("t", 0, 0), ("t", 1, 0), bytes_max=3 * size_bytes), 12))
    assert [values(rows["t", index]) for index in (0, 1)] == [[b"a", b"b", b"c"], []]
    assert one(broker, partition_bytes_max=-1).error_code == Error.UNKNOWN_SERVER_ERROR
    assert one(broker, partition_bytes_max=0).error_code == OK


def test_a_broker_may_allow_less_than_a_client() -> None:
    with virtual_broker({"fetch.max.bytes": 1024}) as broker:
        broker.node.create_topic("t", 1)
        append(broker, *[bytes(600)] * 3)
        assert len(values(one(broker))) == 1
        start_ms = broker.node.clock.now_ms()
        assert len(values(one(broker, bytes_min=1 << 19, wait_ms=500))) == 1
        assert broker.node.clock.now_ms() == start_ms, "there is no waiting for more than the broker gives"


def test_a_transaction_that_is_open_is_not_read_by_who_reads_what_is_committed(broker: VirtualBroker) -> None:
    data = build_batch(
        2, [Record(b"k", b"d", (), START_MS)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    replica = broker.node.replicas["t", 0]
    verified = replica.log.producers.start_verification(7, 0, 0, START_MS)
    replica.append(bytearray(data), now_ms=START_MS, steady_ms=0, verification=verified)
    for isolation, expected, aborted in ((0, [b"a", b"b", b"c", b"d"], None), (1, [b"a", b"b", b"c"], [])):
        row = one(broker, isolation_level=isolation)
        assert values(row) == expected
        assert (row.high_watermark, row.last_stable_offset, row.aborted_transactions) == (4, 3, aborted)


@pytest.mark.parametrize(("isolation", "version"), [(-1, 12), (2, 12), (2, 13), (2, 4)])
def test_another_isolation_makes_no_sense(broker: VirtualBroker, isolation: int, version: int) -> None:
    topic: Any = "t" if version <= NAMES_LAST else broker.node.image.topics["t"].id
    answer = broker.ask(request((topic, 0, 0), isolation_level=isolation), version)
    if version >= SESSIONS_SINCE:
        assert answer.error_code == Error.UNKNOWN_SERVER_ERROR
    rows = rows_of(answer)
    assert len(rows) == (1 if version <= NAMES_LAST else 0)
    for row in rows.values():
        assert (row.error_code, row.high_watermark, row.records) == (Error.UNKNOWN_SERVER_ERROR, -1, b"")
    with virtual_broker(as_version="3.9") as old:
        found = rows_of(old.ask(request(("t", 0, 0), isolation_level=isolation), min(version, 12)))
        assert found["t", 0].records is None


# What cannot be read


def test_each_partition_fails_for_itself(broker: VirtualBroker) -> None:
    answer = broker.ask(request(("t", 0, 0), ("t", 7, 0), ("absent", 0, 0), ("t", 1, 1)), 12)
    assert {key: row.error_code for key, row in rows_of(answer).items()} == {
        ("t", 0): OK,
        ("t", 7): UNKNOWN,
        ("absent", 0): UNKNOWN,
        ("t", 1): Error.OFFSET_OUT_OF_RANGE,
    }
    for key, row in rows_of(answer).items():
        if row.error_code:
            assert (row.high_watermark, row.last_stable_offset, row.log_start_offset) == (-1, -1, -1), key
            assert (row.records, row.current_leader.leader_id) == (b"", -1)
    unknown = rows_of(broker.ask(request((OTHER_ID, 0, 0)), 13))
    assert unknown["", 0].error_code == Error.UNKNOWN_TOPIC_ID
    assert one(broker, 3).error_code == OK
    assert one(broker, 4).error_code == one(broker, -1).error_code == Error.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(("release", "of_unknown"), [("2.8", None), ("4.4", [])])
def test_a_partition_that_is_not_there_has_aborted_no_transactions(release: str, of_unknown: Any) -> None:
    with virtual_broker(as_version=release) as broker:
        broker.node.create_topic("t", 1)
        rows = rows_of(broker.ask(request(("t", 0, 9), ("absent", 0, 0)), 11))
        assert rows["t", 0].aborted_transactions is None
        assert rows["absent", 0].aborted_transactions == of_unknown


@pytest.mark.parametrize("version", [10, 11, 12, 16])
def test_who_leads_now_is_told_with_the_address(broker: VirtualBroker, version: int) -> None:
    topic: Any = "t" if version <= NAMES_LAST else broker.node.image.topics["t"].id
    broker.node.replicas["t", 0].leader_id = 77
    answer = broker.ask(request((topic, 0, 0), partition={"current_leader_epoch": 0}), version)
    (row,) = answer.responses[0].partitions
    if version >= 11:
        assert row.error_code == OK, "consumers may read from followers"
    else:
        assert row.error_code == MOVED
    broker.node.replicas["t", 0].leader_id = 1
    for epoch, code in ((0, OK), (1, Error.UNKNOWN_LEADER_EPOCH)):
        answer = broker.ask(request((topic, 0, 0), partition={"current_leader_epoch": epoch}), version)
        (row,) = answer.responses[0].partitions
        assert row.error_code == code
        assert answer.node_endpoints == []
    change(broker, leader=1)
    answer = broker.ask(request((topic, 0, 0), partition={"current_leader_epoch": 0}), version)
    (row,) = answer.responses[0].partitions
    assert row.error_code == Error.FENCED_LEADER_EPOCH
    hint = (row.current_leader.leader_id, row.current_leader.leader_epoch)
    assert hint == ((1, 1) if version >= 12 else (-1, -1))
    endpoints = [(each.node_id, each.host, each.port) for each in answer.node_endpoints]
    assert endpoints == ([(1, *broker.connection.local_address)] if version >= 16 else [])


def test_a_replica_that_there_is_not_reads_nothing(broker: VirtualBroker) -> None:
    for replica_id, code in ((-1, OK), (0, MOVED), (7, MOVED)):
        assert one(broker, replica_id=replica_id).error_code == code
        topic_id = broker.node.image.topics["t"].id
        state = FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=1)
        rows = rows_of(broker.ask(request((topic_id, 0, 0), replica_state=state), 15))
        assert rows["", 0].error_code == code


@pytest.mark.parametrize(("version", "code"), [(5, MOVED), (6, Error.KAFKA_STORAGE_ERROR)])
def test_a_failed_disk_is_told_to_who_knows_that_it_can(broker: VirtualBroker, version: int, code: Error) -> None:
    broker.node.replicas["t", 0].log.offline = KafkaError(Error.KAFKA_STORAGE_ERROR, "gone")
    assert one(broker, version=version).error_code == code
    broker.node.replicas["t", 0].log.offline = None


def test_records_that_the_client_cannot_read_are_refused() -> None:
    unreadable = Error.UNSUPPORTED_COMPRESSION_TYPE
    for release, codes in (("3.9", {3: unreadable, 9: unreadable, 10: OK}), ("4.4", {9: OK, 10: OK})):
        with virtual_broker(as_version=release) as broker:
            broker.node.create_topic("t", 1, {"compression.type": "zstd"})
            append(broker, b"a", codec=ZSTD)
            for version, code in codes.items():
                row = one(broker, version=version)
                assert row.error_code == code, (release, version)
                if code:
                    assert (row.records, row.high_watermark) == (None, -1)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_topic_may_forbid_that_its_records_are_converted(version: int) -> None:
    with virtual_broker(as_version="2.8") as broker:
        broker.node.create_topic("t", 1, {"message.downconversion.enable": "false"})
        append(broker, b"a")
        row = one(broker, version=version)
        if version >= 4:
            assert values(row) == [b"a"]
        else:
            assert (row.error_code, row.records) == (Error.UNSUPPORTED_VERSION, b"")


def test_a_client_is_told_where_its_log_and_ours_part(broker: VirtualBroker) -> None:
    change(broker, leader=1)
    append(broker, b"d")
    assert one(broker, 3).error_code == OK
    for epoch, offset, expected in (
        (0, 3, None),
        (1, 4, None),
        (1, 3, None),
        (0, 4, (0, 3)),
    ):
        row = one(broker, offset, partition={"last_fetched_epoch": epoch})
        assert row.error_code == OK
        told = (row.diverging_epoch.epoch, row.diverging_epoch.end_offset)
        assert told == (expected or (-1, -1)), (epoch, offset)
        assert (row.high_watermark, row.last_stable_offset, row.log_start_offset) == (4, 4, 0)
        assert values(row) == ([] if expected or offset == 4 else [b"d"])
    assert one(broker, 3, partition={"last_fetched_epoch": 7}).error_code == Error.OFFSET_OUT_OF_RANGE


# Waiting


def begin(broker: VirtualBroker, *wanted: tuple[str | bytes, int, int], version: int = 12, **more: Any) -> Any:
    task = broker.begin(request(*wanted, wait_ms=1000, **more), version, by=broker.connect().connection)
    broker.pass_ms(10)
    return task


@pytest.mark.parametrize("version", [3, 12])
def test_a_fetch_that_finds_nothing_waits_for_records(broker: VirtualBroker, version: int) -> None:
    task = begin(broker, ("t", 0, 3), ("t", 1, 0), version=version)
    assert not task.done()
    append(broker, b"d", partition=1)
    broker.pass_ms(1)
    assert task.done()
    assert values(rows_of(broker.wait(task))["t", 1]) == [b"d"]
    assert not any(replica.waiters for replica in broker.node.replicas.values())


def test_a_fetch_waits_for_as_much_as_the_client_wants(broker: VirtualBroker) -> None:
    size_bytes = len(bytes(one(broker).records)) // 3
    task = begin(broker, ("t", 0, 3), ("t", 1, 0), bytes_min=3 * size_bytes)
    for partition in (0, 1):
        append(broker, b"d", partition=partition)
        broker.pass_ms(1)
        assert not task.done()
    append(broker, b"e")
    broker.pass_ms(1)
    assert task.done()
    rows = rows_of(broker.wait(task))
    assert [values(rows["t", index]) for index in (0, 1)] == [[b"d", b"e"], [b"d"]]
    assert rows_of(broker.ask(request(("t", 0, 0), bytes_min=3 * size_bytes, wait_ms=1000), 12))


def test_a_wait_ends_with_its_time(broker: VirtualBroker) -> None:
    for bytes_min, found in ((1 << 19, [b"a", b"b", b"c"]), (1 << 19, [])):
        start_ms = broker.node.clock.now_ms()
        row = one(broker, 0 if found else 3, bytes_min=bytes_min, wait_ms=700)
        assert 700 <= broker.node.clock.now_ms() - start_ms <= 710
        assert values(row) == found
    start_ms = broker.node.clock.now_ms()
    assert values(one(broker, 3, bytes_min=0, wait_ms=700)) == []
    assert values(one(broker, 3)) == []
    assert broker.ask(request(wait_ms=700), 12).responses == []
    assert broker.node.clock.now_ms() - start_ms < 10
    assert not any(replica.waiters for replica in broker.node.replicas.values())


def test_a_wait_ends_when_a_partition_cannot_be_read_any_more(broker: VirtualBroker) -> None:
    task = begin(broker, ("t", 0, 3))
    change(broker, leader=-1)
    broker.pass_ms(1)
    change(broker, leader=1)
    fenced = begin(broker, ("t", 0, 3), partition={"current_leader_epoch": 2})
    change(broker, leader=1)
    topic_id = broker.node.image.topics["t"].id
    by_id = begin(broker, (topic_id, 1, 0), version=13)
    by_name = begin(broker, ("t", 1, 0))
    assert [each.done() for each in (fenced, by_id, by_name)] == [True, False, False]
    assert rows_of(broker.wait(fenced))["t", 0].error_code == Error.FENCED_LEADER_EPOCH
    broker.run(broker.node.change, broker.node.controller.delete_topic(name="t"))
    broker.pass_ms(1)
    assert [each.done() for each in (by_id, by_name)] == [True, True]
    assert rows_of(broker.wait(by_name))["t", 1].error_code == UNKNOWN
    assert rows_of(broker.wait(by_id))["", 1].error_code == UNKNOWN, "the id was known when the request came"
    broker.wait(task)


@pytest.mark.parametrize("selector", ["", RACK_AWARE])
@pytest.mark.parametrize("rack", ["", "b"])
def test_a_consumer_whose_rack_has_no_replica_reads_here(selector: str, rack: str) -> None:
    with virtual_broker({"replica.selector.class": selector} if selector else {}) as broker:
        broker.node.create_topic("t", 1)
        append(broker, b"a")
        row = one(broker, rack_id=rack)
        assert values(row) == [b"a"]
        assert row.preferred_read_replica == -1


# Many partitions


@pytest.fixture
def wide(broker: VirtualBroker) -> VirtualBroker:
    broker.run(broker.node.create_topic, "wide", 2 * AT_ONCE_MAX + 10)
    return broker


def wide_request(start: int = 0, **more: Any) -> FetchRequest:
    return request(*[("wide", index, start) for index in range(2 * AT_ONCE_MAX + 10)], **more)


@pytest.mark.parametrize("version", [3, 6, 12])
def test_many_partitions_are_read_as_a_few(wide: VirtualBroker, version: int) -> None:
    filled = [0, AT_ONCE_MAX - 1, AT_ONCE_MAX, 2 * AT_ONCE_MAX + 9]
    for index in filled:
        append(wide, b"w%d" % index, topic="wide", partition=index)
    rows = rows_of(wide.ask(wide_request(), version))
    assert len(rows) == 2 * AT_ONCE_MAX + 10
    assert {index: values(row) for (_, index), row in rows.items() if values(row)} == {
        index: [b"w%d" % index] for index in filled
    }
    assert {row.error_code for row in rows.values()} == {OK}
    assert not any(replica.waiters for replica in wide.node.replicas.values())


@pytest.mark.parametrize("version", [3, 12])
def test_many_partitions_wait_for_records(wide: VirtualBroker, version: int) -> None:
    start_ms = wide.node.clock.now_ms()
    assert len(rows_of(wide.ask(wide_request(wait_ms=300), version))) == 2 * AT_ONCE_MAX + 10
    assert 300 <= wide.node.clock.now_ms() - start_ms <= 330
    task = wide.begin(wide_request(wait_ms=1000), version)
    wide.pass_ms(20)
    assert not task.done()
    append(wide, b"w", topic="wide", partition=AT_ONCE_MAX + 3)
    wide.pass_ms(20)
    assert task.done()
    rows = rows_of(wide.wait(task))
    assert {index: values(row) for (_, index), row in rows.items() if values(row)} == {AT_ONCE_MAX + 3: [b"w"]}
    assert not any(replica.waiters for replica in wide.node.replicas.values())


def test_many_partitions_are_answered_at_once_if_one_fails(wide: VirtualBroker) -> None:
    start_ms = wide.node.clock.now_ms()
    rows = rows_of(wide.ask(wide_request(1, wait_ms=1000), 12))
    assert {row.error_code for row in rows.values()} == {Error.OFFSET_OUT_OF_RANGE}
    assert wide.node.clock.now_ms() - start_ms < 20


# Sessions


def opened(broker: VirtualBroker, *wanted: tuple[str, int, int], **more: Any) -> Any:
    answer = broker.ask(request(*wanted, epoch=0, **more), 12)
    assert (answer.error_code, answer.session_id > 0) == (OK, True)
    return answer


def go_on(broker: VirtualBroker, session: int, epoch: int, *wanted: tuple[str, int, int], **more: Any) -> Any:
    return broker.ask(request(*wanted, session=session, epoch=epoch, **more), 12)


def news(answer: Any) -> dict[tuple[str, int], list[bytes]]:
    assert answer.error_code == OK
    return {key: values(row) for key, row in rows_of(answer).items()}


def test_a_session_tells_what_is_new(broker: VirtualBroker) -> None:
    first = opened(broker, ("t", 0, 3), ("t", 1, 0))
    assert news(first) == {("t", 0): [], ("t", 1): []}
    session = first.session_id
    assert news(go_on(broker, session, 1)) == {}
    append(broker, b"d", partition=1)
    told = go_on(broker, session, 2)
    assert (news(told), told.session_id) == ({("t", 1): [b"d"]}, session)
    assert news(go_on(broker, session, 3)) == {("t", 1): [b"d"]}, "as long as the client does not go on"
    assert news(go_on(broker, session, 4, ("t", 1, 1))) == {}
    broker.node.replicas["t", 0].log.advance_log_start(2)
    broker.run(broker.node.replicas["t", 0].log_start_moved, "a test wants it")
    assert news(go_on(broker, session, 5)) == {("t", 0): []}, "its log begins elsewhere"
    assert news(go_on(broker, session, 6, ("t", 1, 0), forgotten=(("t", 1),))) == {}


def test_an_error_in_a_session_is_told_until_it_is_gone(broker: VirtualBroker) -> None:
    session = opened(broker, ("t", 0, 3), ("t", 1, 9)).session_id
    for epoch in (1, 2):
        rows = rows_of(go_on(broker, session, epoch))
        assert {key: row.error_code for key, row in rows.items()} == {("t", 1): Error.OFFSET_OUT_OF_RANGE}
    assert news(go_on(broker, session, 3, ("t", 1, 0))) == {("t", 1): []}, "that the error is gone is news"
    assert news(go_on(broker, session, 4)) == {}


def test_sessions_have_an_id_and_an_epoch(broker: VirtualBroker) -> None:
    session = opened(broker, ("t", 0, 3)).session_id
    for wrong, epoch, code in (
        (session, 2, Error.INVALID_FETCH_SESSION_EPOCH),
        (session + 1, 1, Error.FETCH_SESSION_ID_NOT_FOUND),
    ):
        answer = go_on(broker, wrong, epoch)
        assert (answer.error_code, answer.session_id, answer.responses) == (code, 0, [])
    topic_id = broker.node.image.topics["t"].id
    other = broker.ask(request((topic_id, 0, 3), session=session, epoch=1), 13)
    assert other.error_code == Error.FETCH_SESSION_TOPIC_ID_ERROR
    assert news(go_on(broker, session, 1)) == {}
    again = opened(broker, ("t", 1, 0), session=session)
    assert again.session_id != session
    assert len(broker.node.fetch_sessions) == 1, "who opens another gives up the one that it names"
    closed = go_on(broker, again.session_id, -1, ("t", 1, 0))
    assert (closed.session_id, news(closed)) == (0, {("t", 1): []})
    assert len(broker.node.fetch_sessions) == 0
    assert go_on(broker, again.session_id, 1).error_code == Error.FETCH_SESSION_ID_NOT_FOUND
    old = broker.ask(request(("t", 0, 3), epoch=0), 6)
    assert (old.session_id, len(broker.node.fetch_sessions)) == (0, 0)


def test_a_session_that_has_forgotten_everything_ends(broker: VirtualBroker) -> None:
    session = opened(broker, ("t", 0, 3)).session_id
    answer = go_on(broker, session, 1, forgotten=(("t", 0),), wait_ms=1000)
    assert (answer.error_code, answer.session_id, answer.responses) == (OK, 0, [])
    assert len(broker.node.fetch_sessions) == 0
    assert not broker.node.replicas["t", 0].waiters


def test_a_request_of_a_session_waits_until_another_takes_its_place(broker: VirtualBroker) -> None:
    session = opened(broker, ("t", 0, 3)).session_id
    first = begin(broker, session=session, epoch=1)
    assert not first.done()
    second = begin(broker, session=session, epoch=2)
    assert (first.done(), second.done()) == (True, False)
    answer = broker.wait(first)
    assert (answer.error_code, answer.session_id) == (Error.INVALID_FETCH_SESSION_EPOCH, session)
    append(broker, b"d")
    broker.pass_ms(1)
    assert news(broker.wait(second)) == {("t", 0): [b"d"]}


def test_a_session_that_is_closed_answers_who_waits(broker: VirtualBroker) -> None:
    session = opened(broker, ("t", 0, 3)).session_id
    task = begin(broker, session=session, epoch=1)
    broker.ask(request(session=session, epoch=-1), 12)
    broker.pass_ms(1)
    assert task.done()
    assert broker.wait(task).error_code == OK
    assert not broker.node.replicas["t", 0].waiters


def test_a_wide_session_reads_all_of_its_partitions_once(wide: VirtualBroker) -> None:
    answer = wide.ask(wide_request(epoch=0), 12)
    session = answer.session_id
    assert len(rows_of(answer)) == 2 * AT_ONCE_MAX + 10
    assert news(go_on(wide, session, 1)) == {}
    append(wide, b"w", topic="wide", partition=5)
    assert news(go_on(wide, session, 2)) == {("wide", 5): [b"w"]}
    again = wide.ask(wide_request(session=session, epoch=3), 12)
    assert news(again) == {("wide", 5): [b"w"]}

"""Quotas at work: what answers say, and when more is taken from a connection; in virtual time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from minibroker.broker.dispatch import find_route
from minibroker.errors import Error
from minibroker.events import Event
from minibroker.log.build import build_batch
from minibroker.log.memory_storage import MemoryStorage
from minibroker.log.records import Record
from minibroker.protocol.framing import encode_request
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.create_partitions import CreatePartitionsRequest
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.delete_records import DeleteRecordsRequest
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.security.principal import Principal
from tests.broker.handlers.test_quotas import alter
from tests.broker.virtual_broker import VirtualBroker, virtual_broker
from tests.server.running import FedTransport, append, fetch, produce

PRODUCE, FETCH, METADATA = 0, 1, 3
NO_TOPICS = MetadataRequest(topics=[])


@contextmanager
def limited(settings: dict[str, object] | None = None, **limits: float) -> Iterator[VirtualBroker]:
    """A broker with a topic, and limits for the client id `test`."""
    with virtual_broker(settings) as broker:
        broker.node.create_topic("t")
        alter(broker, ({"client-id": "test"}, dict(limits)))
        yield broker


def frame(request: Request, version: int, number: int = 1, client_id: str = "test") -> bytes:
    return b"".join(encode_request(request, version, number, client_id))


def batch(size_bytes: int = 1000) -> bytes:
    return build_batch(2, [Record(None, bytes(size_bytes))])


def is_answered(transport: FedTransport, count: int) -> bool:
    """Whether so many answers have come."""
    position = found = 0
    while position < len(transport.sent):
        position += 4 + int.from_bytes(transport.sent[position : position + 4], "big")
        found += 1
    return found == count


def muted_ms(broker: VirtualBroker, transport: FedTransport, client_id: str = "test") -> int:
    """Return for how long nothing is taken from a connection: a question is answered then."""
    begun_ms, transport.sent[:] = broker.now_ms(), b""
    broker.feed(transport, frame(NO_TOPICS, 9, client_id=client_id))
    while not transport.sent:
        broker.pass_ms(1)
        assert broker.now_ms() - begun_ms < 100_000
    return broker.now_ms() - begun_ms


# Produce


@pytest.mark.parametrize("version", [3, 5, 9, 11])
def test_a_producer_above_its_limit_is_answered_at_once_and_then_has_to_wait(version: int) -> None:
    with limited(producer_byte_rate=100) as broker:
        transport = broker.connect()
        asked = frame(produce("t", batch()), version)
        for _ in range(1000 // len(asked)):
            broker.feed(transport, asked)
        broker.feed(transport, asked)
        answers = transport.answers((PRODUCE, version))
        expected_ms = round((len(asked) - 4) / 10 / 100 * 10_000) - 10_000  # of its size, without the length
        assert answers[0][1].throttle_time_ms == expected_ms > 0
        assert answers[0][1].responses[0].partition_responses[0].error_code == Error.NONE
        assert muted_ms(broker, transport) == expected_ms
        assert muted_ms(broker, transport) <= 1


def test_a_producer_within_its_limit_and_others_do_not_wait() -> None:
    with limited(producer_byte_rate=1000) as broker:
        transport = broker.connect()
        assert broker.ask(produce("t", batch()), 9).throttle_time_ms == 0
        assert broker.ask(produce("t", batch(20_000)), 9, client_id="another").throttle_time_ms == 0
        assert broker.ask(produce("t", batch(20_000)), 9, client_id=None).throttle_time_ms == 0
        assert muted_ms(broker, transport) <= 1


def test_a_producer_that_wants_no_answer_waits_too() -> None:
    with limited(producer_byte_rate=100) as broker:
        transport = broker.connect()
        broker.feed(transport, frame(produce("t", batch(), acks=0), 9))
        assert not transport.sent
        assert 600 < muted_ms(broker, transport) < 2000


def test_whoever_listens_hears_of_it() -> None:
    with limited(producer_byte_rate=100) as broker:
        heard: list[Event] = []
        broker.node.events.subscribe(heard.append)
        answer = broker.ask(produce("t", batch(2000)), 9)
        wait_ms = answer.throttle_time_ms
        (event,) = (event for event in heard if event.kind == "throttle")
        assert event.line == f"throttle b1 User:ANONYMOUS/test Produce wait={wait_ms}"
        assert event.sentence.endswith("its Produce was above a quota.")


def test_what_came_with_a_request_that_is_throttled_waits_and_others_go_on() -> None:
    with limited(producer_byte_rate=100) as broker:
        transport, other = broker.connect(), broker.connect()
        asked = frame(produce("t", batch(2000)), 9, 1)
        broker.feed(transport, asked + frame(NO_TOPICS, 9, 2) + frame(NO_TOPICS, 9, 3))
        broker.pass_ms(1000)
        assert is_answered(transport, 1)
        assert muted_ms(broker, other) <= 1
        broker.pass_ms(30_000)
        assert [number for number, _ in transport.answers((PRODUCE, 9), (METADATA, 9), (METADATA, 9))] == [1, 2, 3]


def test_a_client_that_goes_while_it_has_to_wait_leaves_nothing_behind() -> None:
    with limited(producer_byte_rate=100) as broker:
        transport = broker.connect()
        broker.feed(transport, frame(produce("t", batch(5000)), 9))
        broker.feed(transport, frame(NO_TOPICS, 9))
        broker.hang_up(transport)
        broker.pass_ms(100_000)
        assert not broker.loop.failures


def test_a_broker_that_stands_still_and_goes_on_keeps_a_client_waiting() -> None:
    with limited(producer_byte_rate=100) as broker:
        transport = broker.connect()
        broker.feed(transport, frame(produce("t", batch(2000)), 9))
        throttle_ms = transport.answers((PRODUCE, 9))[0][1].throttle_time_ms
        broker.run(broker.node.servers[0].pause)
        broker.run(broker.node.servers[0].resume)
        assert muted_ms(broker, transport) == throttle_ms


def test_a_muted_client_is_not_taken_for_one_that_is_silent() -> None:
    with limited({"connections.max.idle.ms": "2000"}, producer_byte_rate=100) as broker:
        transport = broker.connect()
        broker.feed(transport, frame(produce("t", batch(2000)), 9) + frame(NO_TOPICS, 9)[:5])
        broker.pass_ms(10_500)
        assert not transport.is_gone
        broker.feed(transport, frame(NO_TOPICS, 9)[5:])
        broker.pass_ms(1000)
        assert is_answered(transport, 2)


# Fetch


def test_a_fetch_above_the_limit_is_answered_without_records_and_served_when_the_time_is_over() -> None:
    with limited(consumer_byte_rate=300) as broker:
        append(broker.node, "t", bytes(1000))
        append(broker.node, "t", bytes(1500))
        transport = broker.connect()
        broker.feed(transport, frame(fetch("t", 0, bytes_max=1100), 11))
        broker.feed(transport, frame(fetch("t", 0, bytes_max=1100), 11))
        broker.feed(transport, frame(fetch("t", 1), 11))
        (_, first), (_, second), (_, third) = transport.answers(*[(FETCH, 11)] * 3)
        assert first.responses[0].partitions[0].records
        assert first.throttle_time_ms == second.throttle_time_ms == 0
        assert third.responses == []
        throttle_ms = third.throttle_time_ms
        assert 1000 < throttle_ms < 10_000
        begun_ms, transport.sent[:] = broker.now_ms(), b""
        broker.feed(transport, frame(fetch("t", 1), 11))
        broker.pass_ms(throttle_ms - 1)
        assert not transport.sent
        broker.pass_ms(20_000)
        assert broker.now_ms() - begun_ms > throttle_ms


def test_a_fetch_is_asked_for_no_more_than_could_ever_be_let_through() -> None:
    with limited(consumer_byte_rate=300) as broker:
        for _ in range(5):
            append(broker.node, "t", bytes(1000))
        answer = broker.ask(fetch("t"), 11)
        assert answer.throttle_time_ms  # with what is around the records it is a little more
        assert answer.throttle_time_ms < 1000
        broker.pass_ms(900)  # the window becomes longer
        records = broker.ask(fetch("t"), 11).responses[0].partitions[0].records
        assert 2000 < len(records) <= 3000
        answer = broker.ask(fetch("t"), 11, client_id="another")
        assert len(answer.responses[0].partitions[0].records) > 5000


def session_fetch(session_id: int, epoch: int, partitions: list[tuple[str, int]], **more: Any) -> FetchRequest:
    Topic = FetchRequest.FetchTopic
    topics = [
        Topic(topic=name, partitions=[Topic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=9999)])
        for name, offset in partitions
    ]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=100_000,
        isolation_level=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics,
        forgotten_topics_data=[],
        rack_id="",
        **more,
    )


def test_a_session_tells_again_what_a_throttled_answer_left_out() -> None:
    with limited(consumer_byte_rate=200) as broker:
        broker.node.create_topic("u")
        append(broker.node, "u", bytes(1500))
        opened = broker.ask(session_fetch(0, 0, [("t", 0), ("u", 0)]), 11)
        assert opened.session_id
        append(broker.node, "t", bytes(700))
        Rows = DeleteRecordsRequest.DeleteRecordsTopic
        rows = [Rows(name="u", partitions=[Rows.DeleteRecordsPartition(partition_index=0, offset=1)])]
        assert not broker.ask(DeleteRecordsRequest(topics=rows, timeout_ms=10), 1).topics[0].partitions[0].error_code
        answer = broker.ask(session_fetch(opened.session_id, 1, [("u", 1)]), 11)
        assert answer.throttle_time_ms
        assert (answer.session_id, answer.error_code, answer.responses) == (opened.session_id, Error.NONE, [])
        broker.pass_ms(20_000)
        answer = broker.ask(session_fetch(opened.session_id, 2, []), 11)
        told = {topic.topic: topic.partitions[0] for topic in answer.responses}
        assert told["t"].records
        assert told["u"].log_start_offset == 1


def test_a_throttled_fetch_opens_no_session() -> None:
    with limited(consumer_byte_rate=200) as broker:
        append(broker.node, "t", bytes(1500))
        assert broker.ask(session_fetch(0, -1, [("t", 0)]), 11).throttle_time_ms == 0
        answer = broker.ask(session_fetch(0, 0, [("t", 0)]), 11)
        assert answer.throttle_time_ms
        assert answer.session_id == 0
        assert not len(broker.node.fetch_sessions)


def test_a_fetch_that_waits_is_counted_when_it_is_answered() -> None:
    with limited(consumer_byte_rate=100) as broker:
        waiting = broker.begin(fetch("t", wait_ms=5000), 11)
        broker.run(append, broker.node, "t", bytes(5000))
        broker.pass_ms(0)
        answer = broker.wait(waiting)
        assert answer.throttle_time_ms
        assert answer.responses == []


# The time of the broker


def test_whoever_takes_too_much_of_the_brokers_time_waits_up_to_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    with limited(request_percentage=1) as broker:
        now_ns = 0

        def fine_ns() -> int:
            nonlocal now_ns
            now_ns += 60_000_000  # between any two looks
            return now_ns

        monkeypatch.setattr(broker.node.quotas_guard, "fine_ns", fine_ns)
        assert broker.ask(produce("t", batch()), 9).throttle_time_ms == 0  # 6 of the 10 % s of a window
        assert broker.ask(produce("t", batch()), 9).throttle_time_ms == 1000  # 2 s would be right, and one is the most
        assert broker.ask(NO_TOPICS, 9).throttle_time_ms == 1000
        assert broker.ask(NO_TOPICS, 9, client_id="another").throttle_time_ms == 0
        assert broker.ask(produce("t", batch()), 9).throttle_time_ms == 1000
        assert broker.ask(fetch("t", 0), 11).throttle_time_ms == 1000
        transport = broker.connect()
        broker.feed(transport, frame(produce("t", batch(), acks=0), 9))
        assert muted_ms(broker, transport) <= 1  # Kafka does not count it


def test_work_in_shares_is_counted_share_by_share(monkeypatch: pytest.MonkeyPatch) -> None:
    with limited(request_percentage=1) as broker:
        now_ns = 0

        def fine_ns() -> int:
            nonlocal now_ns
            now_ns += 10_000_000
            return now_ns

        monkeypatch.setattr(broker.node.quotas_guard, "fine_ns", fine_ns)
        made = broker.ask(new_topics(*[f"n{number}" for number in range(200)]), 5)
        assert len(made.topics) == 200
        assert made.throttle_time_ms == 1000


@pytest.mark.parametrize(("api", "is_counted"), [(METADATA, True), (18, True), (17, False), (27, False), (36, False)])
def test_logins_and_what_brokers_ask_are_not_counted(api: int, is_counted: bool) -> None:
    with limited(request_percentage=1) as broker:

        def handler(request: Request, context: Any) -> None: ...

        assert (broker.node.quotas_guard.guard(api, 0, handler) is not handler) == is_counted


# Changes of topics


def new_topics(*names: str, partitions: int = 1, validate_only: bool = False) -> CreateTopicsRequest:
    Topic = CreateTopicsRequest.CreatableTopic
    topics = [
        Topic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=validate_only)


def test_newer_requests_for_topics_are_refused_above_the_limit_one_by_one() -> None:
    with limited(controller_mutation_rate=1) as broker:
        answer = broker.ask(new_topics("a", "b", "c", partitions=6), 6)
        codes = [topic.error_code for topic in answer.topics]
        assert codes == [Error.NONE, Error.NONE, Error.THROTTLING_QUOTA_EXCEEDED]  # of a bucket of 11: -1 is left
        assert answer.topics[2].error_message is None
        assert answer.throttle_time_ms == 1000
        assert set(broker.node.image.topics) == {"t", "a", "b"}
        broker.pass_ms(1000)
        assert broker.ask(new_topics("c"), 6).topics[0].error_code == Error.NONE


def test_a_request_for_topics_looks_at_no_limits_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with limited(controller_mutation_rate=1) as broker:
        taken: list[object] = []
        monkeypatch.setattr(broker.node.mutation_quota, "take_limits", taken.append)
        assert broker.ask(new_topics("a"), 6).topics[0].error_code == Error.NONE
        alter(broker, ({"client-id": "other"}, {"controller_mutation_rate": 5.0}))
        assert broker.ask(new_topics("b"), 6).topics[0].error_code == Error.NONE
        assert not taken


def test_older_requests_for_topics_are_done_and_whoever_sent_them_waits() -> None:
    with limited(controller_mutation_rate=1) as broker:
        answer = broker.ask(new_topics("a", "b", "c", partitions=6), 5)
        assert [topic.error_code for topic in answer.topics] == [Error.NONE] * 3
        assert answer.throttle_time_ms == 7000


def test_deleting_and_adding_partitions_counts_too() -> None:
    with limited(controller_mutation_rate=1) as broker:
        broker.node.create_topic("a", 12)
        gone = DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000)
        assert broker.ask(gone, 5).responses[0].error_code == Error.NONE
        assert broker.ask(gone, 5).responses[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        More = CreatePartitionsRequest.CreatePartitionsTopic
        more = CreatePartitionsRequest(
            topics=[More(name="t", count=3, assignments=None)], timeout_ms=1000, validate_only=False
        )
        answer = broker.ask(more, 3)
        assert answer.results[0].error_code == Error.THROTTLING_QUOTA_EXCEEDED
        assert answer.throttle_time_ms == 1000
        assert broker.ask(more, 2).results[0].error_code == Error.NONE
        gone = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
        answer = broker.ask(gone, 5)
        assert answer.responses[0].error_code == Error.THROTTLING_QUOTA_EXCEEDED
        assert "t" in broker.node.image.topics


def wanted(broker: VirtualBroker, *names: str, client_id: str = "test") -> dict[str, int]:
    """Ask for topics that are made if they are not there; return the code of each."""
    Topic = MetadataRequest.MetadataRequestTopic
    answer = broker.ask(MetadataRequest(topics=[Topic(name=name) for name in names]), 9, client_id=client_id)
    assert answer.throttle_time_ms == 0
    return {topic.name: topic.error_code for topic in answer.topics}


def test_topics_that_are_made_because_they_are_asked_for_count_and_nobody_is_told() -> None:
    with limited({"num.partitions": 6}, controller_mutation_rate=1) as broker:
        codes = wanted(broker, "a", "b", "c")
        assert list(codes.values()) == [Error.NONE, Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION]  # of 11: -1 is left
        assert broker.ask(new_topics("d"), 6).topics[0].error_code == Error.THROTTLING_QUOTA_EXCEEDED
        assert wanted(broker, "a", "d", client_id="other") == {"a": Error.NONE, "d": Error.NONE}
        broker.pass_ms(1000)
        assert wanted(broker, "c") == {"c": Error.NONE}


def test_who_asks_for_topics_above_the_limit_is_not_held_back() -> None:
    with limited({"num.partitions": 12}, controller_mutation_rate=1) as broker:
        transport, Topic = broker.connect(), MetadataRequest.MetadataRequestTopic
        broker.feed(transport, frame(MetadataRequest(topics=[Topic(name="a"), Topic(name="b")]), 9))
        while not transport.sent:
            broker.pass_ms(1)
        assert muted_ms(broker, transport) == 0


def test_a_topic_that_cannot_be_made_does_not_count() -> None:
    with virtual_broker({"num.partitions": 100, "default.replication.factor": 3}) as broker:
        alter(broker, ({"client-id": "test"}, {"controller_mutation_rate": 1.0}))
        wanted(broker, "a")
        assert broker.ask(new_topics("b"), 6).topics[0].error_code == Error.NONE


# Whose limit, and when


def test_limits_of_users_are_for_those_who_have_said_who_they_are() -> None:
    with virtual_broker() as broker:
        broker.node.create_topic("t")
        alter(broker, ({"user": "alice"}, {"producer_byte_rate": 10.0}))
        transport = broker.connect()
        assert broker.ask(produce("t", batch()), 9, by=transport.connection).throttle_time_ms == 0
        transport.connection.principal = Principal("User", "alice")
        assert broker.ask(produce("t", batch()), 9, by=transport.connection).throttle_time_ms


def test_nothing_stands_before_handlers_as_long_as_nobody_is_limited() -> None:
    with virtual_broker() as broker:
        broker.node.create_topic("t")
        handle = find_route(0, 9).handler
        usual = broker.node.dispatcher.guards
        assert not [each for each in usual if each(0, 9, handle) is not handle]
        alter(broker, ({"ip": "127.0.0.9"}, {"connection_creation_rate": 10.0}))
        assert broker.node.dispatcher.guards == usual
        alter(broker, ({"user": None}, {"producer_byte_rate": 10.0}))
        assert broker.ask(produce("t", batch()), 9).throttle_time_ms
        alter(broker, ({"user": None}, {"producer_byte_rate": None}))
        assert broker.node.dispatcher.guards == usual
        assert broker.ask(produce("t", batch()), 9).throttle_time_ms == 0


def test_quotas_of_a_directory_hold_from_its_start() -> None:
    storage = MemoryStorage(lambda: 0)
    with virtual_broker(storage=storage) as broker:
        broker.node.create_topic("t")
        alter(broker, ({"user": None}, {"producer_byte_rate": 10.0}))
    with virtual_broker(storage=storage) as broker:
        assert broker.ask(produce("t", batch()), 9).throttle_time_ms


@pytest.mark.setting("quota.window.num", "quota.window.size.seconds")
@pytest.mark.parametrize(("samples", "seconds"), [(2, 1), (6, 1), (6, 3)])
def test_a_window_is_as_long_as_its_samples_are_together(samples: int, seconds: int) -> None:
    settings: dict[str, object] = {"quota.window.num": samples, "quota.window.size.seconds": seconds}
    with limited(settings, producer_byte_rate=100) as broker:
        asked = frame(produce("t", batch(5000)), 9)
        window_s = (samples - 1) * seconds
        expected_ms = ((len(asked) - 4) / window_s - 100) / 100 * window_s * 1000
        assert broker.ask(produce("t", batch(5000)), 9).throttle_time_ms == round(expected_ms)


@pytest.mark.setting("controller.quota.window.num", "controller.quota.window.size.seconds")
@pytest.mark.parametrize(("samples", "seconds"), [(2, 1), (3, 2)])
def test_a_bucket_holds_as_much_as_comes_in_its_samples(samples: int, seconds: int) -> None:
    settings: dict[str, object] = {
        "controller.quota.window.num": samples,
        "controller.quota.window.size.seconds": seconds,
    }
    with limited(settings, controller_mutation_rate=1) as broker:
        names = [f"n{number}" for number in range(10)]
        codes = [topic.error_code for topic in broker.ask(new_topics(*names), 6).topics]
        assert codes.count(Error.NONE) == samples * seconds + 1


UNUSED = """
import sys
from minibroker import Broker
from minibroker.client import Cluster, Producer
async def main():
    async with Broker(topics=["t"]) as broker, Cluster(broker.bootstrap_servers) as client:
        async with Producer(client) as producer:
            await producer.send("t", b"value")
import asyncio
asyncio.run(main())
print([name for name in sys.modules if "quotas" in name or "connection_rates" in name or "throttles" in name])
"""


def test_a_broker_that_limits_nobody_has_loaded_nothing_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", UNUSED], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['minibroker.server.connection_quotas']"

"""Instances at one broker, in virtual time: who uses up what was promised, and who waits for how long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from minibroker.broker.instance_flows import HELD_BYTES_MAX, HELD_MS_MAX, InstanceFlow
from minibroker.errors import Error
from minibroker.log.build import build_batch
from minibroker.log.records import Record
from minibroker.protocol.framing import encode_request
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.security.principal import Principal
from tests.broker.handlers.test_quotas import alter
from tests.broker.virtual_broker import VirtualBroker, virtual_broker
from tests.server.running import produce

PRODUCE = 9
LIMITED = {"instance.shop.topic.prefix": "shop.", "instance.shop.producer.byte.rate": "100000"}
FULL = {f"instance.{name}.{key}": value for name in ("shop", "mill") for key, value in {
    "topic.prefix": f"{name}.", "capacity.bytes": "1000"}.items()}  # fmt: skip
RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:good",
}


def batch(size_bytes: int) -> bytes:
    return build_batch(2, [Record(None, bytes(size_bytes))])


def code(answer: Any) -> int:
    found: int = answer.responses[0].partition_responses[0].error_code
    return found


def flow(broker: VirtualBroker, name: str = "shop") -> InstanceFlow:
    assert broker.node.instances is not None
    return broker.node.instances.flows[name]


@contextmanager
def full() -> Iterator[VirtualBroker]:
    """A broker with two instances, both full."""
    with virtual_broker(FULL) as broker:
        for topic in ("shop.a", "mill.a", "other"):
            broker.node.create_topic(topic, configs={"max.message.bytes": str(HELD_BYTES_MAX)})
        for topic in ("shop.a", "mill.a"):
            assert code(broker.ask(produce(topic, batch(2000)), PRODUCE)) == Error.NONE
        broker.pass_ms(3000)
        assert flow(broker).holder.is_full
        assert flow(broker, "mill").holder.is_full
        said = [line for line in broker.said if line.startswith("instance ")]
        assert said == [
            "instance shop is full: records for it are held back, for it has 1000 bytes or more",
            "instance mill is full: records for it are held back, for it has 1000 bytes or more",
        ]
        yield broker


def make_room(broker: VirtualBroker, *topics: str) -> None:
    for topic in topics:
        broker.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5)
        broker.node.create_topic(topic, configs={"max.message.bytes": str(HELD_BYTES_MAX)})
    broker.pass_ms(3000)


def held(topic: str, size_bytes: int = 10, timeout_ms: int = 60_000, acks: int = 1) -> ProduceRequest:
    asked = produce(topic, batch(size_bytes), acks=acks)
    asked.timeout_ms = timeout_ms
    return asked


# Who uses up what was promised


@pytest.mark.parametrize("topic", ["shop.a", "shop.not-there"])
def test_who_may_not_write_uses_up_nothing(topic: str) -> None:
    with virtual_broker({**LIMITED, **RULES}) as broker:
        broker.node.create_topic("shop.a")
        evil, good = broker.connect().connection, broker.connect().connection
        evil.principal, good.principal = Principal("User", "evil"), Principal("User", "good")
        answer = broker.ask(produce(topic, batch(900_000)), PRODUCE, by=evil)
        assert code(answer) == Error.TOPIC_AUTHORIZATION_FAILED
        assert answer.throttle_time_ms == 0
        answer = broker.ask(produce("shop.a", batch(100)), PRODUCE, by=good)
        assert (code(answer), answer.throttle_time_ms) == (Error.NONE, 0)
        assert broker.ask(produce("shop.a", batch(900_000)), PRODUCE, by=good).throttle_time_ms > 5000


@pytest.mark.parametrize("acks", [-1, 1])
def test_what_is_not_appended_is_not_counted(acks: int) -> None:
    with virtual_broker(LIMITED) as broker:
        broker.node.create_topic("shop.a", configs={"max.message.bytes": "1000"})
        answer = broker.ask(produce("shop.a", batch(900_000), acks=acks), PRODUCE)
        assert (code(answer), answer.throttle_time_ms) == (Error.MESSAGE_TOO_LARGE, 0)


@pytest.mark.parametrize(("limit", "instance"), [(10_000, 100_000), (40_000, 10_000)])
def test_of_two_limits_the_stricter_one_holds_and_is_told(limit: int, instance: int) -> None:
    with virtual_broker({**LIMITED, "instance.shop.producer.byte.rate": str(instance)}) as broker:
        broker.node.create_topic("shop.a")
        alter(broker, ({"client-id": "test"}, {"producer_byte_rate": limit}))
        client = broker.connect()
        asked = broker.ask(produce("shop.a", batch(600_000)), PRODUCE, by=client.connection)
        assert asked.throttle_time_ms > 40_000
        client.connection.mute(5)  # a shorter wait does not end the longer one
        broker.pass_ms(40_000)
        assert client.connection.is_answering
        broker.pass_ms(asked.throttle_time_ms - 40_000)
        assert not client.connection.is_answering


# A full instance


def test_who_may_not_write_does_not_wait_for_room() -> None:
    with virtual_broker({**FULL, **RULES}) as broker:
        broker.node.create_topic("shop.a")
        good, evil = broker.connect().connection, broker.connect().connection
        good.principal, evil.principal = Principal("User", "good"), Principal("User", "evil")
        assert code(broker.ask(produce("shop.a", batch(2000)), PRODUCE, by=good)) == Error.NONE
        broker.pass_ms(3000)
        answer = broker.begin(held("shop.a"), PRODUCE, by=evil)
        assert answer.done()
        assert code(answer.result()) == Error.TOPIC_AUTHORIZATION_FAILED


def test_what_waits_is_bounded_for_each_instance_and_all_of_a_request_counts() -> None:
    with full() as broker:
        large, asked = HELD_BYTES_MAX // 4, held("shop.a")
        asked.topic_data += produce("other", batch(large)).topic_data
        one = broker.begin(asked, PRODUCE)
        assert not one.done()
        assert flow(broker).held_bytes > large
        more = broker.begin(asked, PRODUCE)
        assert more.done()  # half of what may wait is for the other instance
        answer = more.result()
        assert code(answer) == Error.REQUEST_TIMED_OUT  # which clients repeat
        assert answer.responses[0].partition_responses[0].error_message == "instance shop is full"
        assert answer.throttle_time_ms == 1000
        other = broker.begin(held("mill.a", large), PRODUCE)
        assert not other.done()
        make_room(broker, "shop.a", "mill.a")
        assert code(broker.wait(one)) == code(broker.wait(other)) == Error.NONE
        assert flow(broker).held_bytes == 0


def test_what_comes_in_one_turn_of_the_loop_is_bounded_as_well() -> None:
    with full() as broker:
        frame = b"".join(encode_request(held("shop.a", HELD_BYTES_MAX // 5), PRODUCE, 1, "c"))[4:]

        def ask_four_times() -> list[Any]:
            return [broker.node.dispatcher.answer(memoryview(frame), broker.connection) for _ in range(4)]

        answers = broker.run(ask_four_times)
        waiting = [each for each in answers if hasattr(each, "__await__")]
        assert len(waiting) == 2  # of half of what may be held
        assert flow(broker).held_bytes < HELD_BYTES_MAX // 2
        tasks = [broker.loop.create_task(each) for each in waiting]
        make_room(broker, "shop.a")
        for task in tasks:
            broker.wait(task)
        assert flow(broker).held_bytes == 0


def test_nothing_waits_longer_than_clients_do_by_default() -> None:
    with full() as broker:
        asked = broker.begin(held("shop.a", timeout_ms=2**31 - 1), PRODUCE)
        broker.pass_ms(HELD_MS_MAX - 10)
        assert not asked.done()
        broker.pass_ms(10)
        assert code(broker.wait(asked)) == Error.REQUEST_TIMED_OUT


def test_who_asks_for_no_answer_is_closed_and_not_dropped_in_silence() -> None:
    with full() as broker:
        asked = broker.begin(held("shop.a", timeout_ms=100, acks=0), PRODUCE)
        broker.pass_ms(200)
        with pytest.raises(Exception, match="instance shop is full"):
            broker.wait(asked)


def test_a_request_whose_time_is_over_wakes_nobody_else() -> None:
    with full() as broker:
        others = [broker.begin(held("shop.a"), PRODUCE) for _ in range(20)]
        waiting = list(flow(broker).waiting)
        late = broker.begin(held("shop.a", timeout_ms=50), PRODUCE)
        assert len(flow(broker).waiting) == 21
        broker.pass_ms(100)
        assert code(broker.wait(late)) == Error.REQUEST_TIMED_OUT
        assert list(flow(broker).waiting) == waiting  # the same futures: they were not woken and put back
        make_room(broker, "shop.a")
        answers = [broker.wait(each) for each in others]
        assert {code(each) for each in answers} == {Error.NONE}
        offsets = [each.responses[0].partition_responses[0].base_offset for each in answers]
        assert offsets == sorted(offsets)  # who has waited longest is first


def test_other_topics_are_written_and_metadata_are_told_meanwhile() -> None:
    with full() as broker:
        held_back = broker.begin(held("shop.a", timeout_ms=500), PRODUCE)
        assert code(broker.ask(produce("other", batch(10)), PRODUCE)) == Error.NONE
        assert broker.ask(MetadataRequest(topics=[]), PRODUCE).topics == []
        assert not held_back.done()
        broker.pass_ms(600)


def test_of_what_comes_by_a_listener_topics_of_others_and_kafkas_own_are_not_its_instances() -> None:
    settings = {**LIMITED, "instance.vip.listener": "PLAINTEXT", "instance.vip.consumer.byte.rate": "100000"}
    with virtual_broker(settings) as broker:
        flows = broker.node.instances
        assert flows is not None
        named = {topic: flows._flow_of(topic, "PLAINTEXT") for topic in ("any", "shop.a", "__consumer_offsets")}
        assert {topic: each and each.instance.name for topic, each in named.items()} == {
            "any": "vip",
            "shop.a": "shop",
            "__consumer_offsets": None,
        }

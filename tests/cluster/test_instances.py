"""Instances in a cluster, in virtual time: what flows is what was promised, whatever becomes of the master."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from minibroker.errors import Error
from minibroker.protocol.framing import decode_response, encode_request
from tests.cluster.virtual import Lab, in_cluster
from tests.server.running import FedTransport, batch, fetch, produce

PROMISED = 300_000
SETTINGS = {"instance.shop.topic.prefix": "shop.", "instance.shop.producer.byte.rate": str(PROMISED)}
TOPIC = "shop.a"
VALUE_BYTES = 5000
SETTLED_MS, MEASURED_MS = 30_000, 60_000


class Client:
    """Produces to one broker as fast as it wants, and as it may."""

    def __init__(self, lab: Lab, broker: int, demand: float, topic: str = TOPIC):
        self.lab = lab
        self.demand = demand  # bytes a second
        self.taken_bytes = 0
        self.asked = produce(topic, batch(bytes(VALUE_BYTES)), partition=broker - 1)
        self.size_bytes = len(self.asked.topic_data[0].partition_data[0].records or b"")
        self.transport = FedTransport(lab.cluster.nodes[broker])

    async def run(self, until_ms: int) -> None:
        clock, left_bytes = self.lab.world.clock, 0.0
        while clock.steady_ms() < until_ms:
            left_bytes = min(left_bytes + self.demand / 100, self.demand)
            while left_bytes >= self.size_bytes and clock.steady_ms() < until_ms:
                left_bytes -= self.size_bytes
                self.transport.feed(b"".join(encode_request(self.asked, 9, 1, "c")))
                while not self.transport.sent:
                    await clock.sleep(5)
                answer = decode_response(bytes(self.transport.sent[4:]), 0, 9)[1]
                self.transport.sent.clear()
                if answer.responses[0].partition_responses[0].error_code == Error.NONE:
                    self.taken_bytes += self.size_bytes
            await clock.sleep(10)


async def made(lab: Lab, topic: str = TOPIC) -> None:
    lab.cluster.create_topic(topic, assignments=[[each] for each in lab.cluster.broker_ids])
    await lab.cluster.waits.in_sync()
    await lab.world.clock.sleep(3000)


async def flowed(lab: Lab, clients: list[Client], for_ms: int) -> list[float]:
    """Let clients go on, and return what each took, in bytes a second."""
    before = [each.taken_bytes for each in clients]
    until_ms = lab.world.clock.steady_ms() + for_ms
    await asyncio.gather(*(each.run(until_ms) for each in clients))
    return [(each.taken_bytes - was) * 1000 / for_ms for each, was in zip(clients, before, strict=True)]


@pytest.mark.parametrize("rule", ["scaled", "ckafka"])
@pytest.mark.parametrize("demands", [(400, 400, 400), (400, 40, 40), (400, 200, 10), (50, 50, 50)])
def test_what_flows_is_what_was_promised(demands: tuple[int, ...], rule: str) -> None:
    async def main(lab: Lab) -> None:
        await made(lab)
        clients = [Client(lab, broker, demand * 1000) for broker, demand in enumerate(demands, 1)]
        await flowed(lab, clients, SETTLED_MS)
        rates = await flowed(lab, clients, MEASURED_MS)
        most = PROMISED * (1 if rule == "scaled" else 1.2)
        assert sum(rates) <= most * 1.02
        assert all(rate > 0 for rate in rates)
        wanted = min(sum(demands) * 1000, PROMISED)
        if rule == "scaled" and len(set(demands)) == 1:
            assert sum(rates) >= wanted * 0.95, rates
        rows = lab.cluster.instances()
        assert [row["broker"] for row in rows] == [1, 2, 3]
        shares = [row["produced"]["share"] for row in rows]
        assert sum(shares) <= most * 1.000001
        for rate, row in zip(rates, rows, strict=True):
            assert rate <= row["produced"]["share"] * 1.1

    in_cluster(main, settings={**SETTINGS, "instance.shop.rule": rule})


def test_shares_settle_where_all_want_more_than_there_is() -> None:
    async def main(lab: Lab) -> None:
        await made(lab)
        await flowed(lab, [Client(lab, 1, 400_000), Client(lab, 2, 10_000), Client(lab, 3, 10_000)], 30_000)
        everybody = [Client(lab, broker, 400_000) for broker in (1, 2, 3)]
        await flowed(lab, everybody, 60_000)
        shares = [row["produced"]["share"] for row in lab.cluster.instances()]
        assert min(shares) >= 0.8 * max(shares)
        before = len(lab.lines("shares"))
        rates = await flowed(lab, everybody, 60_000)
        assert [row["produced"]["share"] for row in lab.cluster.instances()] == pytest.approx(shares)
        assert rates == pytest.approx(shares, rel=0.1)
        assert len({line.rpartition(") ")[2] for line in lab.lines("shares")[before:]}) <= 1

    in_cluster(main, settings=SETTINGS)


def test_each_round_that_changes_something_is_told_of() -> None:
    async def main(lab: Lab) -> None:
        await made(lab)
        assert not lab.lines("shares")
        clients = [Client(lab, 1, 400_000), Client(lab, 2, 30_000), Client(lab, 3, 30_000)]
        await flowed(lab, clients, 10_000)
        told = lab.lines("shares")
        assert told
        assert all(line.startswith("shares shop produced P + 10 % 1: ") for line in told[:1])
        rows = lab.cluster.instances()
        assert rows[0]["produced"]["share"] > 1.5 * PROMISED / 3
        assert rows[0]["produced"]["step"] == "P + 10 %"
        assert {row["fetched"]["share"] for row in rows} == {None}

    in_cluster(main, settings=SETTINGS)


def test_who_has_lost_the_master_falls_back_and_others_have_room() -> None:
    async def main(lab: Lab) -> None:
        await made(lab)
        clients = [Client(lab, 1, 400_000), Client(lab, 2, 30_000), Client(lab, 3, 30_000)]
        await flowed(lab, clients, 30_000)
        lab.cluster.links.cut(1, "controller")
        node = lab.cluster.nodes[1]
        assert node.instances is not None
        holder = node.instances.flows["shop"].holder
        assert holder.flow(node.clock.steady_ms()).produced > 150_000
        rates = await flowed(lab, clients, 15_000)
        assert sum(rates) <= PROMISED * 1.1
        assert holder.flow(node.clock.steady_ms()).produced == pytest.approx(100_000)
        lab.cluster.links.heal(1, "controller")

    # A broker that says nothing would be fenced, and its partition led by nobody.
    in_cluster(main, settings={**SETTINGS, "broker.session.timeout.ms": "120000"})


def test_a_new_controller_begins_from_fair_shares() -> None:
    async def main(lab: Lab) -> None:
        await made(lab)
        clients = [Client(lab, 1, 400_000), Client(lab, 2, 30_000), Client(lab, 3, 30_000)]
        await flowed(lab, clients, 30_000)
        await lab.cluster.kill("controller")
        await lab.world.clock.sleep(1000)
        await lab.cluster.start("controller")
        await lab.world.clock.sleep(1500)
        assert {row["produced"]["step"] for row in lab.cluster.instances()} == {"F"}
        rates = await flowed(lab, clients, 30_000)
        assert sum(rates) <= PROMISED * 1.05
        assert rates[0] > 130_000

    in_cluster(main, settings=SETTINGS)


def test_a_full_instance_holds_records_back_until_there_is_room_and_is_read_on() -> None:
    async def main(lab: Lab) -> None:
        await made(lab)
        await made(lab, "other")
        first = Client(lab, 1, 1e6)
        await flowed(lab, [first], 3000)
        taken = first.taken_bytes
        assert 20_000 <= taken < 4_000_000
        transport = FedTransport(lab.cluster.nodes[1])
        asked = produce(TOPIC, batch(b"late"))
        transport.feed(b"".join(encode_request(asked, 9, 1, "c")))
        await lab.world.clock.sleep(500)
        assert not transport.sent
        # Consumers go on, and so do other topics.
        reader = FedTransport(lab.cluster.nodes[1])
        reader.feed(b"".join(encode_request(fetch(TOPIC), 11, 1, "r")))
        other = FedTransport(lab.cluster.nodes[1])
        other.feed(b"".join(encode_request(produce("other", batch(b"o")), 9, 1, "c")))
        await lab.world.clock.sleep(10)
        assert decode_response(bytes(reader.sent[4:]), 1, 11)[1].responses[0].partitions[0].records
        assert decode_response(bytes(other.sent[4:]), 0, 9)[1].responses[0].partition_responses[0].error_code == 0
        # After its own time a request is answered, and clients ask again.
        await lab.world.clock.sleep(600)
        answer = decode_response(bytes(transport.sent[4:]), 0, 9)[1]
        assert answer.responses[0].partition_responses[0].error_code == Error.REQUEST_TIMED_OUT
        assert answer.throttle_time_ms == 1000
        transport.sent.clear()
        assert lab.lines("full") == ["full shop True"]

        again = FedTransport(lab.cluster.nodes[1])
        asked.timeout_ms = 60_000
        again.feed(b"".join(encode_request(asked, 9, 2, "c")))
        replica = lab.cluster.replica(TOPIC, 0, 1)
        assert replica is not None
        await lab.world.clock.sleep(100)
        assert not again.sent
        replica.log.roll(now_ms=lab.world.clock.now_ms())
        lab.cluster.alter_topic(TOPIC, retention_bytes="0")
        await lab.world.clock.sleep(1000)
        await lab.cluster.cleaning.retention_now(TOPIC)
        await lab.world.clock.sleep(3000)
        answer = decode_response(bytes(again.sent[4:]), 0, 9)[1]
        assert answer.responses[0].partition_responses[0].error_code == Error.NONE
        assert lab.lines("full") == ["full shop True", "full shop False"]

    in_cluster(main, settings={"instance.shop.topic.prefix": "shop.", "instance.shop.capacity.bytes": "20000"})


def test_a_full_instance_may_refuse_at_once_and_the_rest_of_a_request_is_written() -> None:
    async def main(lab: Lab) -> None:
        await made(lab)
        await made(lab, "other")
        await flowed(lab, [Client(lab, 1, 1e6)], 3000)
        transport = FedTransport(lab.cluster.nodes[1])
        asked = produce(TOPIC, batch(b"late"))
        asked.topic_data += produce("other", batch(b"o")).topic_data
        transport.feed(b"".join(encode_request(asked, 9, 1, "c")))
        await lab.world.clock.sleep(10)
        answer = decode_response(bytes(transport.sent[4:]), 0, 9)[1]
        codes = {each.name: each.partition_responses[0].error_code for each in answer.responses}
        assert codes == {"other": Error.NONE, TOPIC: Error.POLICY_VIOLATION}
        without = FedTransport(lab.cluster.nodes[1])
        without.feed(b"".join(encode_request(produce(TOPIC, batch(b"x"), acks=0), 9, 1, "c")))
        await lab.world.clock.sleep(10)
        assert without.is_closing()

    settings = {
        "instance.shop.topic.prefix": "shop.",
        "instance.shop.capacity.bytes": "20000",
        "instance.shop.full.policy": "refuse",
    }
    in_cluster(main, settings=settings)


def test_what_is_read_is_held_to_its_share_and_no_answer_is_larger_than_half_an_interval() -> None:
    async def main(lab: Lab) -> None:
        await made(lab)
        node: Any = lab.cluster.nodes[1]
        writer = FedTransport(node)
        for number in range(200):
            writer.feed(b"".join(encode_request(produce(TOPIC, batch(bytes(1000))), 9, number, "c")))
            await lab.world.clock.sleep(1)
        reader = FedTransport(node)
        taken, begun_ms = 0, lab.world.clock.steady_ms()
        while lab.world.clock.steady_ms() < begun_ms + 60_000:
            reader.feed(b"".join(encode_request(fetch(TOPIC), 11, 1, "r")))
            while not reader.sent:
                await lab.world.clock.sleep(5)
            records = decode_response(bytes(reader.sent[4:]), 1, 11)[1].responses[0].partitions[0].records
            assert len(records) <= 60_000 / 2
            taken += len(records)
            reader.sent.clear()
        # Nobody reads from the others, so they keep a tenth of what it has.
        assert 40_000 <= taken / 60 <= 60_000

    in_cluster(main, settings={"instance.shop.topic.prefix": "shop.", "instance.shop.consumer.byte.rate": "60000"})

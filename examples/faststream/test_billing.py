"""The service on a broker of its own: FastStream's TestKafkaBroker knows no offsets, no groups and no network."""

import pytest
from billing import create_app
from faststream import TestApp

pytestmark = pytest.mark.kafka(topics=["orders", "bills"])


async def test_an_order_is_billed_and_committed(kafka):
    kafka.produce("orders", {"id": 1, "count": 2, "price_cents": 250})
    async with TestApp(create_app(kafka.bootstrap_servers)):
        await kafka.aexpect("bills", 1, value={"order": 1, "cents": 500, "discount": False}, within="30s")
        assert await kafka.await_committed("billing", "orders", offset=1, timeout=30) == 1


async def test_a_large_order_is_cheaper(kafka):
    kafka.produce("orders", {"id": 1, "count": 100, "price_cents": 100})
    async with TestApp(create_app(kafka.bootstrap_servers)):
        await kafka.aexpect("bills", value={"cents": 9_000, "discount": True}, within="30s")


@pytest.mark.parametrize("broken", ["no JSON", {"id": 1}, {"id": 1, "count": 0, "price_cents": 1}])
async def test_what_is_no_order_does_not_stop_the_others(kafka, broken):
    kafka.produce("orders", broken)
    kafka.produce("orders", {"id": 2, "count": 1, "price_cents": 250})
    async with TestApp(create_app(kafka.bootstrap_servers)):
        await kafka.aexpect("bills", value={"order": 2}, within="30s")
        assert await kafka.await_committed("billing", "orders", offset=2, timeout=30) == 2
    assert len(kafka.records("bills")) == 1


async def test_a_bill_whose_answer_is_lost_is_written_once(kafka):
    with kafka.faults.add(api="Produce", topic="bills", close="after", times=1) as rule:
        kafka.produce("orders", {"id": 1, "count": 1, "price_cents": 250})
        async with TestApp(create_app(kafka.bootstrap_servers)):
            assert await kafka.await_committed("billing", "orders", offset=1, timeout=30) == 1
        assert rule.strikes() == 1
    assert len(kafka.records("bills")) == 1

"""The worker on a broker of its own: bills, retries, dead letters, and what happens between work and commit."""

from contextlib import suppress
from threading import Thread

import pytest
from worker import TryAgain, Worker, bill_of

pytestmark = pytest.mark.kafka(topics=["orders", "bills", "orders-dead:1:retention.ms=604800000"])
ORDER = {"id": 1, "count": 2, "price_cents": 250}


class Killed(BaseException):
    """Ends a worker in the middle of its work."""


def run(worker):
    with suppress(Killed):
        worker.run()


@pytest.fixture
def start(kafka):
    """What starts a worker; all of them are stopped after the test."""
    running = []

    def start(process=bill_of):
        worker = Worker(kafka.bootstrap_servers, process)
        thread = Thread(target=run, args=[worker])
        thread.start()
        running.append((worker, thread))
        return worker, thread

    yield start
    for worker, thread in running:
        worker.stopped.set()
        thread.join()


def test_an_order_is_billed_and_committed(kafka, start):
    kafka.produce("orders", ORDER, key="1")
    start()
    kafka.expect("bills", key="1", value={"order": 1, "cents": 500}, within="30s")
    assert kafka.wait_committed("billing", "orders", offset=1, timeout=30) == 1
    assert kafka.records("orders-dead") == []


@pytest.mark.parametrize(
    ("order", "reason"),
    [("no JSON", "JSONDecodeError"), ({"id": 1}, "KeyError"), ({**ORDER, "count": 0}, "count is 0")],
)
def test_what_is_no_order_is_put_aside_and_the_next_is_billed(kafka, start, order, reason):
    kafka.produce("orders", order, key="broken")
    kafka.produce("orders", ORDER, key="1")
    start()
    kafka.expect("bills", key="1", within="30s")
    (dead,) = kafka.expect("orders-dead", key="broken", value=order, within="30s")
    assert reason in dict(dead.headers)["reason"].decode()


def test_an_order_is_tried_three_times(kafka, start):
    attempts = []

    def process(order):
        attempts.append(order["id"])
        if order["id"] == 1 or len(attempts) % 2:
            raise TryAgain("the price list is away")
        return bill_of(order)

    kafka.produce("orders", ORDER)
    kafka.produce("orders", {**ORDER, "id": 2})
    start(process)
    kafka.expect("bills", value={"order": 2}, within="30s")
    kafka.expect("orders-dead", 1, value={"id": 1}, within="0s")
    assert attempts == [1, 1, 1, 2]


def test_a_bill_whose_answer_is_lost_is_written_once(kafka, start):
    with kafka.faults.add(api="Produce", topic="bills", close="after", times=1) as rule:
        kafka.produce("orders", ORDER)
        start()
        assert kafka.wait_committed("billing", "orders", offset=1, timeout=30) == 1
        assert rule.strikes() == 1
    assert len(kafka.records("bills")) == 1


def test_what_was_not_committed_is_done_again_by_the_next_worker(kafka, start):
    reached = []

    def dies(order):
        reached.append(order)
        raise Killed

    kafka.produce("orders", ORDER)
    _, thread = start(dies)
    thread.join()
    assert reached == [ORDER]
    assert kafka.records("bills") == []
    start()
    kafka.expect("bills", value={"order": 1}, within="30s")


def test_dead_letters_are_kept_for_a_week(kafka, start):
    kafka.produce("orders", "no JSON")
    start()
    kafka.expect("orders-dead", within="30s")
    kafka.advance("6d")
    assert len(kafka.records("orders-dead")) == 1
    kafka.advance("2d")
    assert kafka.records("orders-dead") == []

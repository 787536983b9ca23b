"""The API on a broker of its own: what is written, a leader that has moved, lost answers, a broker that refuses."""

import time
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from orders_api import create_app

pytestmark = pytest.mark.kafka(topics=["orders", "states"])
ORDER = {"id": "7", "article": "tea", "count": 2}


@pytest.fixture
def client(kafka) -> Iterator[TestClient]:
    with TestClient(create_app(kafka.bootstrap_servers)) as client:
        yield client


def test_an_order_is_written_before_the_answer(client, kafka):
    assert client.post("/orders", json=ORDER).json() == {"partition": 0, "offset": 0}
    kafka.expect("orders", key="7", value={"article": "tea", "count": 2}, within="0s")


def test_what_is_no_order_is_not_written(client, kafka):
    assert client.post("/orders", json={"id": "7"}).status_code == 422
    kafka.never("orders", within="50ms")


def test_the_state_of_an_order_is_what_was_said_last(client, kafka):
    assert client.get("/orders/7").status_code == 404
    kafka.produce("states", {"state": "paid"}, key="7")
    kafka.produce("states", {"state": "sent"}, key="7")
    deadline = time.monotonic() + 30
    while client.get("/orders/7").json().get("state") != "sent" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert client.get("/orders/7").json() == {"id": "7", "state": "sent"}


def test_a_leader_that_has_moved_is_not_the_customers_concern(client, kafka):
    with kafka.faults.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2) as rule:
        assert client.post("/orders", json=ORDER).status_code == 202
        assert rule.strikes() == 2
    kafka.expect("orders", 1, key="7")


def test_an_order_whose_answer_is_lost_is_written_once(client, kafka):
    with kafka.faults.add(api="Produce", close="after", times=1) as rule:
        assert client.post("/orders", json=ORDER).status_code == 202
        assert rule.strikes() == 1
    assert len(kafka.records("orders")) == 1


def test_an_order_that_cannot_be_written_is_refused(client, kafka):
    with kafka.faults.add(api="Produce", error="TOPIC_AUTHORIZATION_FAILED"):
        answer = client.post("/orders", json=ORDER)
    assert answer.status_code == 503
    assert kafka.records("orders") == []

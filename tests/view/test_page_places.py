"""The places Transactions and Metrics in a real browser."""

from __future__ import annotations

import re
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from minibroker import Broker, Cluster

from .browsing import NARROW, WIDE, Tab, need_browser
from .test_page import EVIL, address_of, compare, produce

need_browser()

pytestmark = [pytest.mark.interop, pytest.mark.outside]


def begin(cluster: Cluster | Broker, id: str, *values: bytes) -> Producer:
    """Write to orders-0 in a transaction that stays open."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": id}
    producer = Producer({**settings, "transaction.timeout.ms": 600_000})
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in values:
        producer.produce("orders", value, partition=0)
    assert producer.flush(60) == 0
    return producer


def settled(scene: str) -> str:
    """A scene without what is another one in each run."""
    scene = re.sub(r"\b[\d.]+ (ms|s) 10 min\b", "2.0 s 10 min", scene)
    return re.sub(r'cell "[\d.]+ (ms|s)"', 'cell "2.0 s"', scene)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_transaction_says_what_it_holds_back_and_is_aborted(
    browser: Any, cluster: Cluster, scheme: str, size: dict[str, int]
) -> None:
    with Tab(browser, address_of(cluster), size=size, scheme=scheme) as tab:
        page = tab.open()
        page.keyboard.press("4")
        page.get_by_text("No transactional id is known here yet").wait_for()
        producer = begin(cluster, "pay-1", b"a", b"b")
        produce(cluster, b"c")
        page.get_by_role("row", name=re.compile("^pay-1 Ongoing .* 10 min orders-0 ")).wait_for()
        page.get_by_role("row", name="orders-0 0 3 3 records pay-1 since 0").wait_for()
        assert not tab.has_no_room_to_the_side()
        if (scheme, size) == ("light", WIDE):
            scene = settled(page.locator("main").aria_snapshot())
            compare(re.sub(r"b[123]\b", "b1", re.sub(r"\b\d+, 0\b", "1000, 0", scene)), "transactions")
        abort = page.get_by_role("button", name="abort the transaction of pay-1")
        abort.focus()
        told = page.get_by_role("contentinfo", name="The same as code").inner_text()
        assert 'cluster.abort_transaction("pay-1")' in told
        assert f"minibroker cluster abort-transaction pay-1 -b {address_of(cluster)}" in told
        assert f"curl -X POST http://{address_of(cluster)}/cluster/abort-transaction" in told
        page.keyboard.press("Enter")
        page.get_by_role("row", name=re.compile("^pay-1 CompleteAbort")).wait_for()
        page.get_by_text("What is held back").wait_for(state="detached")
        with pytest.raises(KafkaException):
            producer.commit_transaction(60)
        assert tab.troubles == []


def test_a_broker_that_is_alone_aborts_transactions_of_any_name_and_goes_on_when_it_is_back(browser: Any) -> None:
    with Broker(topics=["orders"]) as broker, Tab(browser, address_of(broker)) as tab:
        page = tab.open("/#/transactions")
        producers = [begin(broker, id, b"a") for id in (EVIL, "\u202eevil", "javascript:alert(1)", "x" * 2000)]
        page.get_by_role("button", name=re.compile("^abort the transaction of ")).nth(3).wait_for()
        page.get_by_text(f"{EVIL} since 0").wait_for()
        page.get_by_label("Find a transaction").fill("<IMG")
        page.get_by_text("4 transactional ids").wait_for()
        page.get_by_role("button", name=f"abort the transaction of {EVIL}").click()
        page.get_by_role("row", name=re.compile(f"^{re.escape(EVIL)} CompleteAbort")).wait_for()
        told = page.get_by_role("contentinfo", name="The same as code").inner_text()
        assert f'broker.abort_transaction("{EVIL}")' in told
        assert f"minibroker transactions force-terminate --transactional-id '{EVIL}'" in told
        assert page.locator("img, iframe, object").count() == 0
        assert not tab.has_no_room_to_the_side()
        assert tab.troubles == []
        broker.stop()
        page.get_by_text("does not answer").wait_for()
        with Broker(port=int(tab.origin.rpartition(":")[2]), topics=["orders"]):
            page.get_by_text("No transactional id is known here yet").wait_for()
        del producers

"""What tests expect of topics, wherever the broker runs; and what is said when it does not come."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from minibroker import Broker, Cluster
from minibroker.embedded.expectations import Pattern
from minibroker.embedded.record import Record

KINDS = {
    "memory": lambda: Broker(topics="orders"),
    "process": lambda: Broker(topics="orders", process=True),
    "cluster": lambda: Cluster(2, topics=["orders:1:2"]),
}


@pytest.fixture(params=KINDS)
def running(request: pytest.FixtureRequest) -> Iterator[Any]:
    with KINDS[request.param]() as running:
        yield running


def test_records_that_fit_are_returned_and_others_are_not(running: Any) -> None:
    running.produce("orders", '{"id": 1, "state": "new"}', key="a")
    running.produce("orders", '{"id": 1, "state": "paid"}', key=b"b")
    found = running.expect("orders", value={"state": "paid"})
    assert [(each.offset, each.key) for each in found] == [(1, b"b")]
    assert [each.offset for each in running.expect("orders", 2, value={"id": 1})] == [0, 1]
    running.never("orders", value={"id": 2}, within=1)
    with pytest.raises(AssertionError) as failure:
        running.expect("orders", 2, value={"state": "paid"}, within="30ms")
    assert str(failure.value).splitlines() == [
        "orders has 1 of 2 records with value {'state': 'paid'} within 0.03 s",
        "these fit:",
        '  [0] 1  key b  {"id": 1, "state": "paid"}',
        "this came instead:",
        '  [0] 0  key a  {"id": 1, "state": "new"}   (value .state is \'new\')',
    ]
    with pytest.raises(AssertionError, match=r"what was never to come with key 'a':\n  \[0\] 0"):
        running.never("orders", key="a")


async def test_who_waits_is_told_of_what_comes_later() -> None:
    async with Broker(topics="orders") as broker:
        waiting = asyncio.ensure_future(broker.aexpect("orders", 2, value=lambda value: value > b"1", within="20s"))
        never = asyncio.ensure_future(broker.anever("orders", value=b"3", within="20s"))
        for number in range(4):
            await broker.aproduce("orders", b"%d" % number)
        assert [each.value for each in await waiting] == [b"2", b"3"]
        with pytest.raises(AssertionError, match="never to come with value b'3'"):
            await never


def test_a_topic_that_is_not_there_is_named_with_those_that_are() -> None:
    with Broker(topics="orders") as broker:
        with pytest.raises(AssertionError) as failure:
            broker.expect("ordrs", within=10)
        assert str(failure.value) == ("there is no topic 'ordrs' within 0.01 s (topics: orders); did you mean orders?")
        broker.never("ordrs", within=1)
        with pytest.raises(AssertionError, match="no record at all came"):
            broker.expect("orders", within=1)


def test_only_the_last_of_very_many_others_are_shown() -> None:
    with Broker(topics="orders") as broker:
        broker.load("orders", range(25))
        with pytest.raises(AssertionError) as failure:
            broker.expect("orders", value=b"x", within=1)
        *_, last, left = str(failure.value).splitlines()
        assert (last, left) == ("  [0] 24  24   (value is another one)", "  and 15 before them")


RECORD = Record(0, 7, b"k", b'{"a": {"b": [1, true]}, "c": null}', (("h", b"x"), ("h", b"y")), 0)
DIFFERENCES: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    ({"value": ...}, ""),
    ({"key": b"k", "value": {"c": None}}, ""),
    ({"key": "k", "headers": {"h": b"y"}}, ""),
    ({"value": {"a": {"b": [1, ...]}}}, ""),
    ({"value": re.compile("b.*c")}, ""),
    ({"value": re.compile(b'"c"')}, ""),
    ({"key": "j"}, "key is another one"),
    ({"key": None}, "key is not null"),
    ({"value": {"a": {"d": 1}}}, "value .a.d is missing"),
    ({"value": {"a": {"b": [1, 1]}}}, "value .a.b[1] is True"),
    ({"value": {"a": {"b": [1]}}}, "value .a.b is [1, True]"),
    ({"value": [1]}, "value the whole is {'a': {'b': [1, True]}, 'c': None}"),
    ({"value": re.compile("d")}, "value is not like that"),
    ({"value": len, "key": lambda key: key == b"j"}, "key does not fit"),
    ({"headers": {"i": b"x"}}, "header i is missing"),
    ({"headers": {"h": "z"}}, "header h is another one"),
    ({"partition": 1}, "partition is 0"),
]


@pytest.mark.parametrize(("wanted", "said"), DIFFERENCES)
def test_where_a_record_differs(wanted: dict[str, Any], said: str) -> None:
    given = {"value": ..., "key": ..., "headers": {}, "partition": None, **wanted}
    assert Pattern(**given).difference(RECORD) == said


def test_what_is_null_or_no_json_is_said() -> None:
    gone = RECORD._replace(value=None, key=None)
    assert Pattern({"a": 1}, ..., {}, None).difference(gone) == "value is null"
    assert Pattern(None, None, {}, None).difference(gone) == ""
    assert Pattern(1, ..., {}, None).difference(RECORD._replace(value=b"one")) == "value is no JSON"

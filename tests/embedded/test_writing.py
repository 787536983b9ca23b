"""Records that a test puts into a topic, and files of them, wherever the broker runs and whoever may come in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker, Cluster
from minibroker.errors import Error, KafkaError

WAYS: dict[str, Callable[[], Any]] = {
    "memory": lambda: Broker(topics="t:2"),
    "process": lambda: Broker(topics="t:2", process=True),
    "cluster": lambda: Cluster(2, topics=["t:2"]),
    "0.9": lambda: Broker(topics="t:2", as_version="0.9"),
    "users": lambda: Broker(topics="t:2", users={"alice": "secret"}),
    "tls": lambda: Broker(topics="t:2", tls=True),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_record_is_returned_as_it_was_written(way: str) -> None:
    with WAYS[way]() as running:
        headers = {} if way == "0.9" else {"h": "x", "n": None}
        first = running.produce("t", {"id": 1}, key="a", headers=headers, partition=1, timestamp=1_700_000_000_000)
        second = running.produce("t", None, key=b"\xff", partition=1)
        assert (first.offset, first.key, first.value) == (0, b"a", b'{"id":1}')
        assert first.headers == tuple((name, None if each is None else each.encode()) for name, each in headers.items())
        found = running.wait_records("t", 2)
        assert [(each.offset, each.key, each.value) for each in found] == [(0, b"a", b'{"id":1}'), (1, b"\xff", None)]
        assert way == "0.9" or found[0] == first
        assert (second.partition, second.offset) == (1, 1)


async def test_twins_are_awaited() -> None:
    async with Broker(topics="t") as broker:
        assert (await broker.aproduce("t", "1")).offset == 0
        assert await broker.aload("t", [b"2", {"n": 3}]) == 2
        assert [each.value for each in broker.records("t")] == [b"1", b"2", b'{"n":3}']
        with pytest.raises(RuntimeError, match="await the twin"):
            broker.produce("t", "4")


def test_what_cannot_be_written_is_said() -> None:
    with Broker(auto_create_topics_enable="false") as broker:
        with pytest.raises(KafkaError) as failure:
            broker.produce("nowhere", "1")
        assert failure.value.code == Error.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(TypeError, match="is nothing that JSON has"):
            broker.produce("nowhere", {"a": {1}})


FILES = {
    "rows.jsonl": '{"id": "a", "n": 1}\n\n{"id": "b", "n": "\u00e4"}\n',
    "rows.csv": "\ufeffid,n\na,1\nb,\u00e4\n",
    "rows.tsv": "id\tn\na\t1\nb\t\u00e4\n",
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_becomes_records(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(FILES[name], encoding="utf-8")
    with Broker(topics="t") as broker:
        assert broker.load("t", tmp_path / name, key="id") == 2
        one = "1" if name == "rows.jsonl" else '"1"'
        assert [(each.key, each.value) for each in broker.records("t")] == [
            (b"a", f'{{"id":"a","n":{one}}}'.encode()),
            (b"b", '{"id":"b","n":"\u00e4"}'.encode()),
        ]


def test_a_parquet_file_becomes_records(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from datetime import date

    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"id": ["a"], "day": [date(2026, 1, 2)]}), tmp_path / "rows.parquet")
    with Broker(topics="t") as broker:
        assert broker.load("t", str(tmp_path / "rows.parquet")) == 1
        assert broker.records("t")[0].value == b'{"id":"a","day":"2026-01-02"}'


@pytest.mark.parametrize(
    ("name", "text", "key", "said"),
    [
        ("rows.xls", "", None, "none of .jsonl, .csv, .tsv, .parquet"),
        ("rows.jsonl", "{}\n{", None, "rows.jsonl:2 is no JSON"),
        ("rows.jsonl", '{"a": 1}\n{"b": 1}\n', "a", "row 2 has no 'a': {'b': 1}"),
        ("rows.jsonl", "[1]\n", "a", "row 1 has no 'a'"),
    ],
)
def test_a_file_that_cannot_be_read_is_said(name: str, text: str, key: str | None, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with Broker(topics="t") as broker, pytest.raises(ValueError, match=said):
        broker.load("t", tmp_path / name, key=key)


def test_many_rows_go_with_few_of_them_under_way() -> None:
    with Broker(topics="t:3") as broker:
        assert broker.load("t", ({"id": number} for number in range(25_000)), key="id") == 25_000
        assert len(broker.records("t")) == 25_000

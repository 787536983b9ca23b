"""Columns of writes: what is taken, what is refused, and what it says."""

from __future__ import annotations

import pytest

from minibroker.spark.option_values import OptionError
from minibroker.spark.sink.columns import check_columns

HEADERS = "array<struct<key:string,value:binary>>"


@pytest.mark.parametrize(
    "columns",
    [
        {"value": "string"},
        {"key": "binary", "value": "binary", "partition": "int", "timestamp": "timestamp", "headers": HEADERS},
        {"value": "varchar(10)", "key": "string collate UTF8_LCASE"},
        {"value": "binary", "offset": "bigint", "timestampType": "int", "amount": "double"},  # passed over
        {"value": "binary", "topic": "int"},  # the option says it
    ],
    ids=str,
)
def test_columns_of_the_sink_are_taken(columns: dict[str, str]) -> None:
    check_columns(columns.items(), "orders")


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"key": "string"}, "no column value"),
        ({"value": "bigint"}, "column value is bigint: it must be string or binary; cast it"),
        ({"value": "string", "key": "int"}, "column key is int"),
        ({"value": "string", "partition": "bigint"}, "column partition is bigint: it must be int"),
        ({"value": "string", "headers": "map<string,string>"}, "column headers is map"),
        ({"value": "string", "timestamp": "string"}, "column timestamp is string: it must be timestamp or bigint"),
        ({"value": "string", "keys": "string"}, "column keys would not be written: did you mean key"),
        ({"value": "string", "Partition": "int"}, "did you mean partition"),
    ],
    ids=str,
)
def test_other_columns_are_refused(columns: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        check_columns(columns.items(), "orders")


def test_rows_need_a_topic() -> None:
    check_columns([("value", "string"), ("topic", "string")], None)
    with pytest.raises(OptionError, match="no topic: set the option topic"):
        check_columns([("value", "string")], None)
    with pytest.raises(OptionError, match="column topic is int"):
        check_columns([("value", "string"), ("topic", "int")], None)


def test_columns_that_are_written_are_named() -> None:
    fields = [("value", "string"), ("topic", "string"), ("offset", "bigint"), ("key", "binary")]
    assert check_columns(fields, None) == ["value", "topic", "key"]
    assert check_columns(fields, "orders") == ["value", "key"]

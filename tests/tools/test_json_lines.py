"""Records as lines of JSON: nothing is lost on the way there and back."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.tools.json_lines import line_of, read_line


def test_a_line_loses_nothing() -> None:
    key, value, headers = b"\xff", '{"ä":1}'.encode(), [("h", None), ("h", b"\x80")]
    line = line_of("orders", 2, 7, key, value, headers, 1_700_000_000_000, 0)
    assert line == (
        '{"topic":"orders","partition":2,"offset":7,"tstype":"create","ts":1700000000000,'
        '"headers":["h",null,"h",{"base64":"gA=="}],"key":{"base64":"/w=="},"payload":"{\\"ä\\":1}"}'
    )
    found: dict[str, Any] = {
        "topic": "orders",
        "partition": 2,
        "offset": 7,
        "tstype": "create",
        "ts": 1_700_000_000_000,
    }
    assert read_line(line) == {**found, "headers": headers, "key": key, "payload": value}
    empty = read_line(line_of("orders", 2, 7, None, None, [], -1, -1, broker=3))
    assert empty == {
        "topic": "orders",
        "partition": 2,
        "offset": 7,
        "tstype": "unknown",
        "broker": 3,
        "headers": [],
        "key": None,
        "payload": None,
    }


@pytest.mark.parametrize(
    "line",
    [
        "[1]",
        "",
        "{",
        '{"headers":["h"]}',
        '{"ts":"soon"}',
        '{"key":{"base64":5}}',
        '{"key":{"base64":"!"}}',
        "[" * 100_000,
    ],
)
def test_what_is_no_record_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="is no record in JSON"):
        read_line(line)

"""Records by a rule: the same whatever is asked for first, and as skewed, large, late and empty as the rule says."""

from __future__ import annotations

import json
from collections import Counter
from statistics import median

import pyarrow as pa
import pytest

from minibroker.spark.jobs.loading_generator import BLOCK, SCHEMA, records
from minibroker.spark.jobs.loading_rules import NAMES, Spec, parse_spec, time_ms
from minibroker.spark.option_values import OptionError

RULE = "records=20000,keys=50,skew=1,size=lognormal:300:0.5,rate=100,late=0.1:5000,tombstones=0.05,headers=2,seed=3"


@pytest.mark.parametrize("rule", [RULE, RULE + ",values=bytes", RULE + ",values=text,keys=0"])
def test_a_record_is_the_same_in_whatever_piece_it_is_made(rule: str) -> None:
    spec = parse_spec(rule)
    whole = records(spec, 0, 500)
    whole.validate(full=True)
    assert whole.schema == SCHEMA
    for first, count in ((0, 1), (17, 3), (499, 1), (100, 400)):
        assert records(spec, first, count).equals(whole.slice(first, count))
    assert not records(parse_spec(f"{rule},seed=4"), 0, 500).equals(whole)


def test_records_stay_what_they_are_from_version_to_version() -> None:
    found = records(parse_spec("size=90,headers=1,late=0.5:1000,seed=1"), 10_000_000_000, 2).to_pylist()
    assert [(row["key"], row["value"], row["timestamp"].timestamp(), row["headers"]) for row in found] == PINNED


PINNED: list[object] = [
    (
        b"0000002662",
        b'{"id":   10000000000,"user":        2662,"amount":     97048,"text":"lean lost lost blue"}',
        1714067199.105,
        [{"key": "h0", "value": b"52067941"}],
    ),
    (
        b"0000001969",
        b'{"id":   10000000001,"user":        1969,"amount":      3859,"text":" paid paid order se"}',
        1714067200.001,
        [{"key": "h0", "value": b"79420488"}],
    ),
]


def test_keys_are_as_skewed_as_the_rule_says() -> None:
    counts = Counter(records(parse_spec("keys=100,skew=1"), 0, BLOCK).column("key").to_pylist())
    assert len(counts) == 100
    first, second = counts[b"%010d" % 0], counts[b"%010d" % 1]
    assert 1.5 < first / second < 2.0, "about 1 / n, as the integral over 1 to 2 and 2 to 3 is"
    even = Counter(records(parse_spec("keys=100"), 0, BLOCK).column("key").to_pylist())
    assert max(even.values()) < 1.5 * min(even.values())
    assert records(parse_spec("keys=0"), 0, 3).column("key").null_count == 3


def test_sizes_are_those_of_the_rule() -> None:
    def sizes(rule: str) -> list[int]:
        return [len(value) for value in records(parse_spec(rule), 0, 5000).column("value").to_pylist()]

    assert set(sizes("size=137")) == {137}
    uniform = sizes("size=uniform:100:300")
    assert (min(uniform), max(uniform)) == (100, 300)
    assert 195 < median(uniform) < 205
    skewed = sizes("size=lognormal:200:0.5,values=bytes")
    assert 190 < median(skewed) < 210
    assert 0.13 < sum(size > 200 * 2.718**0.5 for size in skewed) / 5000 < 0.19, "one sigma above"


def test_values_are_json_that_names_number_and_key() -> None:
    batch = records(parse_spec("size=uniform:0:200"), 123, 1000).to_pylist()
    for number, row in enumerate(batch, 123):
        value = json.loads(row["value"])
        assert value["id"] == number
        assert value["user"] == int(row["key"])
        assert 0 <= value["amount"] < 100_000
    assert len(batch[0]["value"]) >= 70


def test_times_rise_at_the_rate_but_for_those_that_are_late() -> None:
    def times(rule: str) -> list[int]:
        stamps = records(parse_spec(rule), 0, 10_000).column("timestamp").cast(pa.int64()).to_pylist()
        return [stamp // 1000 for stamp in stamps]

    start = time_ms("2024-01-01")
    assert times("rate=4")[:9:4] == [start, start + 1000, start + 2000]
    late = [start + 250 * index - stamp for index, stamp in enumerate(times("rate=4,late=0.1:500"))]
    assert min(late) == 0
    assert max(late) <= 500
    assert 900 < sum(each > 0 for each in late) < 1100
    ranged = times("records=10000,start=2024-05-01T12:00,end=2024-05-01T13:00")
    assert (ranged[0], ranged[-1]) == (time_ms("2024-05-01T12:00"), time_ms("2024-05-01T13:00"))


def test_tombstones_are_as_many_as_the_rule_says() -> None:
    values = records(parse_spec("tombstones=0.25"), 0, 10_000).column("value")
    values.validate(full=True)
    assert 2300 < values.null_count < 2700


def test_a_rule_of_nothing_is_a_million_records() -> None:
    assert vars(parse_spec("")) == vars(Spec())
    assert Spec().records == 1_000_000
    assert vars(Spec()).keys() == NAMES.keys()
    assert parse_spec("records=1e9").records == 10**9


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("record=5", "'record=5' is not one of records=, keys="),
        ("records", "'records' is not one of"),
        ("records=-1", "records=-1: how many"),
        ("records=1.5e0", "records=1.5e0: how many"),
        ("size=large", "size=large: bytes of a value: 200, uniform:100:300"),
        ("size=uniform:5:1", "size=uniform:5:1"),
        ("late=2", "late=2: share of records"),
        ("values=xml", "values=xml: json, text"),
        ("start=soon", "start=soon: timestamp of the first"),
        ("start=2024-01-02,end=2024-01-01", "is before the start"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rule: str, told: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_spec(rule)
    assert told in str(caught.value)


def test_times_are_of_utc_unless_they_say_otherwise() -> None:
    assert time_ms("1970-01-02") == 86_400_000
    assert time_ms("1970-01-01T01:00+01:00") == 0
    assert time_ms("1700000000000") == 1_700_000_000_000

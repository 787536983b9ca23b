"""Records by a rule: the same from version to version, and as skewed, large, late and empty as the rule says."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from statistics import median
from typing import Any

import pytest

from minibroker.spark.jobs.loading_generator import RULE, Spec, parse_spec, time_ms
from minibroker.spark.option_values import OptionError
from tests.spark.session import Session

START = 1_704_067_200_000  # 2024 begins


def made(spark: Session, rule: str) -> list[Any]:
    rows = spark.call("tests.spark.jobs.loads:made", rule=rule)
    return [
        (key and bytes.fromhex(key), value and bytes.fromhex(value), time, headers)
        for key, value, time, headers in rows
    ]


@pytest.mark.slow
@pytest.mark.interop
def test_records_stay_what_they_are_from_version_to_version(spark: Session) -> None:
    rule = "records=2,size=lognormal:70:0.2,skew=1.1,headers=1,late=0.9:1000,seed=1"
    assert made(spark, rule) == PINNED
    assert made(spark, rule.replace("records=2", "records=300"))[:2] == PINNED
    assert made(spark, f"{rule},seed=2") != PINNED
    _, noise, *_ = made(spark, "records=1,values=bytes,size=16")[0]
    assert noise.hex() == "c686fcb6378af86c90d67e929da5c081"


PINNED: list[Any] = [
    (
        b"0000000090",
        b'{"id":0,"user":90,"amount":77925,"text":"et follower key paid "}',
        1704067200000,
        [["h0", "3435383138313637"]],
    ),
    (
        b"0000000000",
        b'{"id":1,"user":0,"amount":51774,"text":"ate a was offset in leader topic for late and broker replica st"}',
        1704067199851,
        [["h0", "3338303733303631"]],
    ),
]


@pytest.mark.slow
@pytest.mark.interop
def test_keys_are_as_skewed_as_the_rule_says(spark: Session) -> None:
    counts = Counter(key for key, *_ in made(spark, "records=16000,keys=100,skew=1"))
    assert len(counts) == 100
    first, second = counts[b"%010d" % 0], counts[b"%010d" % 1]
    assert 1.5 < first / second < 2.0, "about 1 / n, as the integral over 1 to 2 and 2 to 3 is"
    even = Counter(key for key, *_ in made(spark, "records=16000,keys=100"))
    assert max(even.values()) < 2 * min(even.values())
    assert {key for key, *_ in made(spark, "records=3,keys=0")} == {None}


@pytest.mark.slow
@pytest.mark.interop
def test_sizes_are_those_of_the_rule(spark: Session) -> None:
    def sizes(rule: str) -> list[int]:
        return [len(value) for _, value, *_ in made(spark, f"records=5000,{rule}")]

    assert set(sizes("size=137")) == {137}
    uniform = sizes("size=uniform:100:300")
    assert (min(uniform), max(uniform)) == (100, 300)
    assert 195 < median(uniform) < 205
    skewed = sizes("size=lognormal:200:0.5,values=bytes")
    assert 190 < median(skewed) < 210
    assert 0.13 < sum(size > 200 * 2.718**0.5 for size in skewed) / 5000 < 0.19, "one sigma above"
    assert {len(value) for _, value, *_ in made(spark, "records=3,size=3000000,values=text")} == {1 << 20}


@pytest.mark.slow
@pytest.mark.interop
def test_values_are_json_that_names_number_and_key(spark: Session) -> None:
    rows = made(spark, "records=1000,size=uniform:0:200")
    for number, (key, value, *_) in enumerate(rows):
        found = json.loads(value)
        assert found["id"] == number
        assert found["user"] == int(key)
        assert 0 <= found["amount"] < 100_000
    packed = {
        kind: len(gzip.compress(b"".join(value for _, value, *_ in made(spark, f"records=200,values={kind}")))) / 40_000
        for kind in ("json", "text", "bytes")
    }
    assert packed["json"] < 0.5
    assert packed["text"] < 0.5
    assert packed["bytes"] > 0.99


@pytest.mark.slow
@pytest.mark.interop
def test_times_rise_at_the_rate_but_for_those_that_are_late(spark: Session) -> None:
    def times(rule: str) -> list[int]:
        return [time for _, _, time, _ in made(spark, f"records=10000,{rule}")]

    assert times("rate=4")[:9:4] == [START, START + 1000, START + 2000]
    late = [START + 250 * index - time for index, time in enumerate(times("rate=4,late=0.1:500"))]
    assert min(late) == 0
    assert max(late) <= 500
    assert 900 < sum(each > 0 for each in late) < 1100
    ranged = times("start=2024-05-01T12:00,end=2024-05-01T13:00")
    assert (ranged[0], ranged[-1]) == (time_ms("2024-05-01T12:00"), time_ms("2024-05-01T13:00"))


@pytest.mark.slow
@pytest.mark.interop
def test_tombstones_are_as_many_as_the_rule_says(spark: Session) -> None:
    values = [value for _, value, *_ in made(spark, "records=10000,tombstones=0.25")]
    assert 2300 < values.count(None) < 2700


def test_a_rule_of_nothing_is_a_million_records() -> None:
    assert parse_spec("").records == 1_000_000
    assert vars(parse_spec("")).keys() == Spec.__annotations__.keys() == RULE.rows.keys()
    assert parse_spec(" records = 1e9 ,").records == 10**9


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("record=5", "there is no 'record': did you mean records?"),
        ("records", "records=: how many"),
        ("records=-1", "records=-1: how many"),
        ("records=1.5e0", "records=1.5e0: how many"),
        ("size=large", "size=large: bytes of a value: 200, uniform:100:300"),
        ("size=uniform:5:1", "size=uniform:5:1"),
        ("late=2", "late=2: share of records"),
        ("values=xml", "values is 'xml': it can be json or text or bytes"),
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

"""Records that are made up by a rule: how many, which keys and how skewed, which sizes, which times, headers.

    generated(spark, parse_spec("records=1000000,keys=10000,skew=1.1,size=lognormal:200:0.5,late=0.02:60000,seed=7"))

What must hold: record number n is a function of the seed and n alone, so it is the same on one core and on a hundred,
and in every version: chance is Spark's xxhash64 of the seed, what it is for, and n.
Not here: where the records go (loading.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from random import Random
from typing import Any

from minibroker.spark.option_table import OptionTable
from minibroker.spark.option_values import OptionError

VALUE_BYTES_MAX = 1 << 20
NORMAL_MAX = 8.6  # what `_size` can make of 53 bits of chance
TEXT_BYTES = 1 << 16
WORDS = (
    b"order broker leader follower record batch offset commit the a of to and segment topic key value with replica "
    b"north blue seven river quick amber late paid sent lost new old is was on in at for by index log clean start"
).split()
AES_KEY = b"no secret at all"


class Spec:
    """What is to be made."""

    records: int
    keys: int
    skew: float  # the share of the n-th most frequent key falls about as n ** -skew
    size: tuple[str, float, float]
    values: str
    start: int  # ms
    rate: float
    end: int | None  # ms
    late: tuple[float, int]  # share, ms
    tombstones: float
    headers: int
    seed: int


def parse_spec(text: str) -> Spec:
    """Read NAME=VALUE, with commas between them; raise OptionError for what makes no sense."""
    parts = (part.partition("=") for part in text.split(",") if part.strip())
    rule = Spec()
    vars(rule).update(RULE.values(RULE.by_true_names({name.strip(): value for name, _, value in parts})))
    if rule.end is not None:
        if rule.end < rule.start:
            raise OptionError(f"--generate: the end {rule.end} is before the start {rule.start}")
        rule.rate = (rule.records - 1) * 1000 / max(rule.end - rule.start, 1)
    return rule


def _within(least: float, most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        if not least <= float(text) <= most:
            raise ValueError(text)
        return float(text)

    return read


_share = _within(0, 1)


def _count(text: str) -> int:
    found = float(text) if "e" in text.lower() else int(text)
    if found != int(found) or not 0 <= found <= 1 << 53:
        raise ValueError(text)
    return int(found)


def _size(text: str) -> tuple[str, float, float]:
    kind, *numbers = text.split(":")
    if not numbers:
        return "uniform", _count(kind), _count(kind)
    first, second = map(_within(0, 1e12), numbers)
    if kind not in ("uniform", "lognormal") or (kind == "uniform" and second < first):
        raise ValueError(text)
    return kind, first, second


def _late(text: str) -> tuple[float, int]:
    share, _, most = text.partition(":")
    return _share(share), _count(most or "60000")


def time_ms(text: str) -> int:
    """Read a time: milliseconds since 1970, or a date, perhaps with a time, in UTC unless it says otherwise."""
    if re.fullmatch(r"-?\d{5,}", text):
        return int(text)
    from datetime import UTC, datetime

    found = datetime.fromisoformat(text)
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def _reader(function: Callable[[str], Any]) -> Callable[[str, str], Any]:
    def read(name: str, text: str) -> Any:
        try:
            return function(text.strip())
        except ValueError:
            raise OptionError(f"--generate {name}={text}: {RULE.rows[name].text}") from None

    return read


# --help and docs/spark-jobs.md show the rows.
RULE = OptionTable(
    """
    records | records: count | 1000000 | how many (1000000)
    keys | keys: count | 10000 | how many keys there are (10000); 0: no keys
    skew | skew: amount | 0 | 0: all as often; 1: the n-th key about 1/n as often as the first (0)
    size | size: size | 200 | bytes of a value: 200, uniform:100:300, or lognormal:MEDIAN:SIGMA (200)
    values | values: one of json, text, bytes | json | json, text, or bytes that nothing compresses (json)
    start | start: time | 2024-01-01
    | timestamp of the first record, in ms or as 2024-01-31T12:00 in UTC (2024-01-01)
    rate | rate: rate | 1000 | records per second by their timestamps (1000)
    end | end: time | | timestamp of the last record, instead of a rate
    late | late: late | 0 | share of records that are late, and by how many ms at most: 0.05:60000 (0)
    tombstones | tombstones: share | 0 | share of records without a value (0)
    headers | headers: count | 0 | how many each record has (0)
    seed | seed: count | 0 | another number makes other records (0)
    """,
    readers={
        "count": _reader(_count),
        "amount": _reader(_within(0, 1e12)),
        "rate": _reader(_within(1e-6, 1e12)),
        "share": _reader(_share),
        "size": _reader(_size),
        "late": _reader(_late),
        "time": _reader(time_ms),
    },
    refusal="--generate: there is no {!r}",
    page="docs/spark-jobs.md",
)


def generated(spark: Any, rule: Spec, *, tasks: int | None = None) -> Any:
    """Return a frame of the records; tasks: None: as many as Spark has cores."""
    from pyspark.sql import functions as sql  # pyright: ignore

    number = sql.col("id")

    def bits(purpose: str) -> Any:
        return sql.xxhash64(sql.lit(rule.seed), sql.lit(purpose), number)

    def chance(purpose: str) -> Any:
        """From 0 to below 1."""
        return sql.shiftrightunsigned(bits(purpose), 11) * 2.0**-53

    share, late_ms = rule.late
    behind = sql.when(chance("late") < share, sql.floor(chance("late by") * late_ms) + 1).otherwise(0)
    names = [f"h{each}" for each in range(rule.headers)]
    headers = [
        sql.struct(sql.lit(name).alias("key"), _padded(sql, sql.pmod(bits(name), 10**8), 8).alias("value"))
        for name in names
    ]
    key = _rank(sql, rule, chance("key"))
    columns = [
        _padded(sql, key, max(10, len(str(rule.keys)))).alias("key")
        if rule.keys
        else sql.lit(None).cast("binary").alias("key"),
        sql.when(chance("tombstone") >= rule.tombstones, _value(sql, rule, chance, key)).alias("value"),
        sql.timestamp_millis(rule.start + sql.floor(number * (1000 / rule.rate)) - behind).alias("timestamp"),
        *([sql.array(*headers).alias("headers")] if headers else []),
    ]
    return spark.range(0, rule.records, 1, tasks).select(*columns)


def _padded(sql: Any, number: Any, width: int) -> Any:
    return sql.lpad(number.cast("string"), width, "0").cast("binary")


def _rank(sql: Any, rule: Spec, chance: Any) -> Any:
    """Return which key a record has, 0 the most frequent: the inverse of the integral of x ** -skew."""
    most = rule.keys + 1.0
    if not rule.keys:
        return sql.lit(0)
    if abs(rule.skew - 1) < 1e-9:
        found = sql.pow(sql.lit(most), chance)
    else:
        power = 1 - rule.skew
        found = sql.pow(chance * (most**power - 1) + 1, sql.lit(1 / power))
    return sql.least(sql.floor(found), sql.lit(rule.keys)) - 1


def _value(sql: Any, rule: Spec, chance: Callable[[str], Any], key: Any) -> Any:
    kind, first, second = rule.size
    if kind == "uniform":
        size, size_max = first + sql.floor(chance("size") * (second - first + 1)), second
    else:  # a normal number of two even ones, as Box and Muller found
        normal = sql.sqrt(sql.log(1 - chance("size")) * -2) * sql.cos(chance("turn") * math.tau)
        size, size_max = sql.exp(normal * second) * first, first * math.exp(min(second * NORMAL_MAX, 100))
    size_max = min(size_max, VALUE_BYTES_MAX)
    size = sql.least(size, sql.lit(size_max)).cast("int")
    words = Random(rule.seed)
    text = b" ".join([WORDS[int(words.random() * len(WORDS))] for _ in range(TEXT_BYTES // 3)])[:TEXT_BYTES]
    place = sql.floor(chance("place") * TEXT_BYTES).cast("int") + 1
    text_of_all = sql.lit(text * (2 + int(size_max) // TEXT_BYTES))  # so that none is cut off
    if rule.values == "text":
        return sql.substring(text_of_all, place, size)
    if rule.values == "bytes":
        start = sql.unhex(sql.md5(sql.concat_ws(" ", sql.lit(rule.seed), "id")))
        packed = sql.aes_encrypt(sql.substring(text_of_all, place, size), sql.lit(AES_KEY), sql.lit("CBC"),
                                 sql.lit("DEFAULT"), start)  # fmt: skip
        return sql.substring(packed, sql.lit(1), size)
    amount = sql.floor(chance("amount") * 100_000)
    head = sql.concat(
        sql.lit('{"id":'), "id", sql.lit(',"user":'), key, sql.lit(',"amount":'), amount, sql.lit(',"text":"')
    )
    rest = sql.greatest(size - sql.length(head) - 2, sql.lit(0))
    return sql.concat(head.cast("binary"), sql.substring(text_of_all, place, rest), sql.lit(b'"}'))

"""Where a reset leads, durations, and the CSV of offsets: functions, without a broker."""

from __future__ import annotations

import pytest

from minibroker.cli.reset_plan import Known, milliseconds_of, partitions_in, plan, read_csv, written_csv

KEY = ("orders", 1)
# From 10 to 20, committed 15.
USUAL = Known(start=10, end=20, committed=15)


@pytest.mark.parametrize(
    ("how", "number", "known", "offset", "remark"),
    [
        ("to-earliest", 0, USUAL, 10, ""),
        ("to-latest", 0, USUAL, 20, ""),
        ("to-current", 0, USUAL, 15, ""),
        ("to-current", 0, USUAL._replace(committed=None), 20, ""),
        ("to-current", 0, USUAL._replace(committed=3), 3, ""),  # Kafka's tool leaves it where it is, too
        ("to-offset", 12, USUAL, 12, ""),
        ("to-offset", 10, USUAL, 10, ""),
        ("to-offset", 20, USUAL, 20, ""),
        ("to-offset", 21, USUAL, 20, "New offset (21) is higher than latest offset for topic partition orders-1"),
        ("to-offset", 9, USUAL, 10, "New offset (9) is lower than earliest offset for topic partition orders-1"),
        ("from-file", 9, USUAL, 10, "Value will be set to 10."),
        ("shift-by", -5, USUAL, 10, ""),
        ("shift-by", -6, USUAL, 10, "New offset (9) is lower"),
        ("shift-by", 3, USUAL, 18, ""),
        ("shift-by", 6, USUAL, 20, "New offset (21) is higher"),
        ("to-datetime", 0, USUAL._replace(at_time=13), 13, ""),
        ("by-duration", 0, USUAL._replace(at_time=10), 10, ""),
        ("by-duration", 0, USUAL, 20, "Partition 1 from topic orders has no record so late. Falling back to latest"),
    ],
)
def test_where_a_reset_leads(how: str, number: int, known: Known, offset: int, remark: str) -> None:
    (found,) = plan(how, {KEY: number}, {KEY: known}).values()
    assert found.offset == offset
    assert remark in found.remark
    assert bool(remark) == bool(found.remark)


def test_what_has_no_offset_cannot_be_shifted() -> None:
    with pytest.raises(ValueError, match="cannot shift orders-1: nothing is committed"):
        plan("shift-by", {KEY: 1}, {KEY: Known(0, 9)})


def test_partitions_come_sorted() -> None:
    wanted = {("b", 0): 1, ("a", 10): 2, ("a", 9): 3}
    planned = plan("to-offset", wanted, dict.fromkeys(wanted, Known(0, 9)))
    assert [(key, reset.offset) for key, reset in planned.items()] == [(("a", 9), 3), (("a", 10), 2), (("b", 0), 1)]


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT0S", 0),
        ("PT1S", 1_000),
        ("PT1.5S", 1_500),
        ("PT1,0019S", 1_001),
        ("PT2M", 120_000),
        ("pt1h", 3_600_000),
        ("P1D", 86_400_000),
        ("P2DT3H4M5S", 183_845_000),
        ("-PT1H", -3_600_000),
        ("PT-1H", -3_600_000),
        ("-PT-1H", 3_600_000),
        ("P-1DT1H", -82_800_000),
        ("PT-0.5S", -500),
        ("+P+1D", 86_400_000),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert milliseconds_of(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1h", "PT1H1D", "P1W", "P1Y", "PT.5S", "PT1", "T1H", "PT1H "])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        milliseconds_of(text)


@pytest.mark.parametrize(
    ("text", "found"), [("orders", ("orders", None)), ("orders:0", ("orders", [0])), ("a.b:2,0", ("a.b", [2, 0]))]
)
def test_partitions_of_a_topic(text: str, found: tuple[str, list[int] | None]) -> None:
    assert partitions_in(text) == found


@pytest.mark.parametrize("text", ["orders:", "orders:x", "orders:0,", "orders:0:1"])
def test_what_names_no_partitions(text: str) -> None:
    with pytest.raises(ValueError, match="say topic or topic:0,1,2"):
        partitions_in(text)


def test_a_csv_of_one_group_needs_not_name_it() -> None:
    assert read_csv("orders,0,7\r\n\nusers,1,8\n", ["mine"]) == {"mine": {("orders", 0): 7, ("users", 1): 8}}
    assert read_csv("other,orders,0,7\n", ["mine"]) == {"other": {("orders", 0): 7}}


@pytest.mark.parametrize(
    ("text", "groups", "reason"),
    [
        ("orders,0,1\n", ["a", "b"], r"line 1 is 'orders,0,1': say group,topic,partition,offset"),
        ("a,orders,0,1\nx\n", ["a", "b"], "line 2 is 'x'"),
        ("orders,0\n", ["a"], "line 1 is 'orders,0': say topic,partition,offset"),
        ("orders,zero,1\n", ["a"], "line 1"),
        ("orders,0,last\n", ["a"], "line 1"),
    ],
)
def test_a_csv_that_is_none(text: str, groups: list[str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_csv(text, groups)


@pytest.mark.parametrize("with_group", [True, False])
def test_a_csv_is_read_as_it_was_written(with_group: bool) -> None:
    offsets = {'odd, "very" odd': {("orders", 0): 7, ("a-topic-with-a-rather-long-name", 11): 0}}
    text = written_csv(offsets, with_group)
    assert read_csv(text, list(offsets)) == offsets
    assert ("odd" in text) == with_group
    assert text.endswith("orders,0,7\na-topic-with-a-rather-long-name,11,0\n" if not with_group else ",11,0\n")

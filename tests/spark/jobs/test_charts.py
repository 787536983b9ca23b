"""Charts and pages: well-formed, in proportion, with every text escaped, and in need of nothing else."""

from __future__ import annotations

import re
import xml.etree.ElementTree as Tree
from itertools import pairwise

import pytest

from minibroker.spark.jobs import charts, page
from minibroker.spark.jobs.charts import Axis, Bar, Dot, Series

SVG = Tree.Element
NASTY = '<b>&"\x27</b>'
NUMBERS = Axis("n", str)


def drawn(chart: str) -> SVG:
    return Tree.fromstring(chart)


def rectangles(chart: str, kind: str) -> list[dict[str, str]]:
    return [each.attrib for each in drawn(chart).iter("rect") if each.attrib["class"] == kind]


def test_bars_are_as_long_as_their_values() -> None:
    chart = charts.bars([Bar("one", 10, "10"), Bar("two", 5, "5"), Bar("none", 0, "0")], "lengths")
    widths = [float(each["width"]) for each in rectangles(chart, "s0")]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.2)
    assert widths[2] == 0
    assert [float(each["width"]) for each in rectangles(chart, "track")] == [widths[0]] * 3


def test_columns_are_as_high_as_their_values_and_stand_on_one_line() -> None:
    chart = charts.columns([Bar("a", 40, "40"), Bar("b", 10, "10")], "heights", NUMBERS)
    high, low = rectangles(chart, "s0")
    assert float(high["height"]) == pytest.approx(4 * float(low["height"]), abs=0.3)
    bottoms = {round(float(each["y"]) + float(each["height"])) for each in (high, low)}
    assert len(bottoms) == 1


def test_labels_of_many_columns_do_not_lie_over_each_other() -> None:
    chart = charts.columns([Bar(f"label {n}", n, str(n)) for n in range(90)], "many", NUMBERS)
    at = [
        float(each.attrib["x"])
        for each in drawn(chart).iter("text")
        if (each.text or "").startswith("label") and each.attrib["class"] == "tick"
    ]
    assert 2 <= len(at) <= 12
    assert min(b - a for a, b in pairwise(at)) > 40


def test_points_rise_and_go_right_with_their_values() -> None:
    dots = [Dot(1, 1, "a", "a"), Dot(10, 2, "b", "b"), Dot(100, 4, "c", "c", 50, 200)]
    chart = charts.scatter([Series("s", dots, 0)], "points", Axis("x", str, is_log=True), NUMBERS)
    at = [(float(each.attrib["cx"]), float(each.attrib["cy"])) for each in drawn(chart).iter("circle")]
    assert at[1][0] - at[0][0] == pytest.approx(at[2][0] - at[1][0], abs=0.3), "equal steps of a logarithm"
    assert at[0][1] - at[1][1] == pytest.approx((at[1][1] - at[2][1]) / 2, abs=0.3)
    (spread,) = (each.attrib for each in drawn(chart).iter("line") if each.attrib["class"].startswith("spread"))
    assert float(spread["x1"]) < at[2][0] < float(spread["x2"])


def test_labels_of_points_in_one_place_are_drawn_apart() -> None:
    dots = [Dot(5, 5, str(n), f"name {n}") for n in range(4)]
    chart = charts.scatter([Series("s", dots)], "near", NUMBERS, NUMBERS)
    places = [
        (each.attrib["x"], each.attrib["y"])
        for each in drawn(chart).iter("text")
        if (each.text or "").startswith("name")
    ]
    assert len(set(places)) == 4


@pytest.mark.parametrize(
    "chart",
    [
        charts.bars([], "nothing"),
        charts.columns([], "nothing", NUMBERS),
        charts.lines([], "nothing", NUMBERS, NUMBERS),
        charts.scatter([Series("s", [])], "nothing", Axis("x", str, is_log=True), Axis("y", str, is_log=True)),
        charts.bars([Bar("zero", 0, "0")], "zero"),
        charts.columns([Bar("zero", 0, "0")], "zero", NUMBERS),
        charts.lines([Series("s", [Dot(3, 7, "one")])], "one", NUMBERS, NUMBERS),
        charts.lines(
            [Series("s", [Dot(3, 7, "one"), Dot(4, 7, "two")])], "equal", NUMBERS, Axis("y", str, is_log=True)
        ),
    ],
)
def test_what_is_hardly_anything_can_be_drawn(chart: str) -> None:
    found = drawn(chart)
    assert found.attrib["role"] == "img"
    assert found.attrib["aria-label"]
    assert not re.search(r"nan|inf", chart)


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (0, 10, [0, 2.5, 5, 7.5, 10]),
        (0, 3, [0, 1, 2, 3]),
        (0, 0, [0, 0.25, 0.5, 0.75, 1]),
        (0, 87_000, [0, 25_000, 50_000, 75_000, 100_000]),
    ],
)
def test_ticks_are_round(low: float, high: float, wanted: list[float]) -> None:
    assert charts.ticks(low, high) == wanted


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [(3, 80, [2, 5, 10, 20, 50, 100]), (1, 10_000, [1, 10, 100, 1000, 10_000]), (7, 7, [5, 10])],
)
def test_ticks_of_a_logarithm_are_round(low: float, high: float, wanted: list[float]) -> None:
    assert charts.ticks(low, high, is_log=True) == wanted


def test_texts_are_escaped_everywhere() -> None:
    bar = Bar(NASTY, 1, NASTY)
    axis = Axis(NASTY, lambda _: NASTY)
    series = [Series(NASTY, [Dot(1, 1, NASTY, NASTY)])]
    html = (
        page.Page(NASTY, NASTY)
        .add(
            NASTY,
            page.tiles([(NASTY, NASTY, NASTY)])
            + page.finds([NASTY], NASTY)
            + page.finds([], NASTY)
            + page.figure(charts.bars([bar], NASTY), NASTY, about=NASTY, table=page.table([NASTY], [[NASTY]], NASTY))
            + charts.columns([bar], NASTY, axis)
            + charts.scatter(series, NASTY, axis, axis)
            + charts.legend([(NASTY, 1)]),
        )
        .html()
    )
    assert "<b>" not in html
    Tree.fromstring(html.removeprefix("<!DOCTYPE html>\n"))


def test_a_page_needs_nothing_but_itself() -> None:
    html = page.Page("A title", "About").add("One", "<p>text</p>").html()
    assert not re.search(r"https?:|<script|<link|@import|url\(|src=", html)
    assert 'lang="en"' in html
    assert "<title>A title</title>" in html


def test_numbers_of_a_table_are_set_to_the_right_and_texts_are_not() -> None:
    html = page.table(["name", "count", "size"], [["a", 1234, "5.1 MB"], ["`b", None, "2 B"]])
    cells = [(each.text or (each[0].text), each.attrib.get("class")) for each in Tree.fromstring(html).iter("td")]
    assert cells == [
        ("a", None),
        ("1,234", "number"),
        ("5.1 MB", "number"),
        ("b", None),
        ("–", "number"),
        ("2 B", "number"),
    ]


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (page.count_text(0), "0"),
        (page.count_text(999), "999"),
        (page.count_text(1234), "1.23 k"),
        (page.count_text(999_999), "1 M"),
        (page.bytes_text(51_200_000), "51.2 MB"),
        (page.size_text(16 * 1024), "16 KiB"),
        (page.size_text(1 << 20), "1 MiB"),
        (page.share_text(1, 3), "33.3 %"),
        (page.share_text(1, 1_000_000), "<0.01 %"),
        (page.share_text(999_999, 1_000_000), ">99.9 %"),
        (page.share_text(0, 0), "–"),
        (page.time_text(1_700_000_000_000), "2023-11-14 22:13:20"),
        (page.time_text(1 << 62), f"{1 << 62} ms"),
        (page.time_text(None), "–"),
        (page.iso_text(1_700_000_000_123), "2023-11-14T22:13:20.123Z"),
        (page.iso_text(-5), "-5 ms"),
        (page.duration_text(750), "750 ms"),
        (page.duration_text(5_400_000), "90.0 min"),
        (page.duration_text(3 * page.DAY_MS), "3.0 days"),
    ],
)
def test_values_are_short_for_people(shown: str, wanted: str) -> None:
    assert shown == wanted

"""Charts and pages: well-formed, in proportion, with every text escaped, and in need of nothing else."""

from __future__ import annotations

import re
import xml.etree.ElementTree as Tree
from pathlib import Path

import pytest

from minibroker.spark.jobs import charts, page
from minibroker.spark.jobs.charts import Bar, Line
from minibroker.spark.jobs.summary import Table
from minibroker.spark.option_values import OptionError

NASTY = '<b>&"\x27</b>'


def drawn(chart: str) -> Tree.Element:
    return Tree.fromstring(f"<div>{chart}</div>")


def shares(chart: str, which: str) -> list[float]:
    """Return how large boxes are, in percent."""
    return [float(share) for share in re.findall(rf'style="{which}:([\d.]+)%"', chart)]


def test_bars_are_as_long_as_their_values() -> None:
    chart = charts.bars([Bar("one", 10, "10"), Bar("two", 5, "5"), Bar("none", 0, "0")], "lengths")
    assert shares(chart, "width") == [100, 50, 0]


def test_columns_are_as_high_as_their_values_and_named_at_their_ends() -> None:
    chart = charts.columns([Bar(f"label {n}", n, str(n)) for n in range(5)], "heights", "4 records")
    assert shares(chart, "height") == [0, 25, 50, 75, 100]
    assert [each.text for each in drawn(chart).iter("span")] == ["label 0", "label 2", "label 4"]


def test_lines_rise_with_their_values_and_stay_inside() -> None:
    series = [Line("a", [1, 2, None, 4], 0), Line("b", [4, 4, 4, 4], 1)]
    chart = charts.lines(series, ["1 KiB", "4 KiB", "16 KiB", "1 MiB"], "lines", "size", str)
    first, second = (
        [tuple(map(float, point.split(","))) for point in each.attrib["points"].split()]
        for each in drawn(chart).iter("polyline")
    )
    assert [x for x, _ in first] == [x for x, _ in second if x != second[2][0]]
    assert first[0][1] - first[1][1] == pytest.approx((first[1][1] - first[2][1]) / 2, abs=0.2)
    assert first[-1] == second[-1]
    for text in drawn(chart).iter("text"):
        length = 7 * len(text.text or "")
        begin = float(text.attrib["x"]) - {"end": length, "middle": length / 2}[text.attrib["text-anchor"]]
        assert begin >= -1, text.text
        assert begin + length <= charts.WIDTH + 1, text.text
    assert len(set(re.findall("[●■▲]", chart))) == 2, "another mark for each series"


@pytest.mark.parametrize(
    "chart",
    [
        charts.bars([], "nothing"),
        charts.columns([], "nothing", ""),
        charts.lines([], [], "nothing", "", str),
        charts.lines([Line("s", [])], [], "nothing", "", str),
        charts.bars([Bar("zero", 0, "0")], "zero"),
        charts.columns([Bar("zero", 0, "0")], "zero", "0"),
        charts.lines([Line("s", [7])], ["one"], "one", "", str),
        charts.lines([Line("s", [0, 0])], ["one", "two"], "zero", "", str),
    ],
)
def test_what_is_hardly_anything_can_be_drawn(chart: str) -> None:
    found = next(each for each in drawn(chart).iter() if each.attrib.get("role") == "img")
    assert found.attrib["aria-label"]
    assert not re.search(r"nan|inf", chart)


@pytest.mark.parametrize(
    ("most", "wanted"),
    [
        (10, [0, 2.5, 5, 7.5, 10]),
        (3, [0, 1, 2, 3]),
        (0, [0, 0.25]),
        (87_000, [0, 25_000, 50_000, 75_000, 100_000]),
        (0.9, [0, 0.25, 0.5, 0.75, 1]),
    ],
)
def test_ticks_are_round(most: float, wanted: list[float]) -> None:
    assert charts.ticks(most) == wanted


def a_page(text: str) -> str:
    bar = Bar(text, 1, text)
    tables = [Table("first", ["topic", text], [[text, text]]), Table("second", ["topic", "n"], [["other", 1]])]
    said = page.tiles([(text, text, text)]) + page.finds([text], text) + page.finds([], text)
    chart = charts.bars([bar], text) + charts.lines([Line(text, [1])], [text], text, text, str)

    def of_topic(name: str, mine: dict[str, list[page.Row]]) -> str:
        assert mine == {"first": [{text: text}], "second": []} or name == "other"
        columns = charts.columns([bar], text, text)
        return page.charts(page.figure(chart, text, about=text, table=page.table([text], [[text]])), columns)

    return page.report(text, text, said, tables, {"first": text}, of_topic, [text])


def test_texts_are_escaped_everywhere() -> None:
    html = a_page(NASTY)
    assert "<b>" not in html
    Tree.fromstring(html.removeprefix("<!DOCTYPE html>\n"))


def test_a_page_needs_nothing_but_itself() -> None:
    html = a_page("a title")
    assert not re.search(r"https?:|<script|<link|@import|url\(|src=", html)
    assert 'lang="en"' in html
    assert "<title>a title</title>" in html
    found = Tree.fromstring(html.removeprefix("<!DOCTYPE html>\n"))
    heads = [each.text for each in found.iter("h2")]
    assert heads == ["At a glance", "a title", "other", "How it was done"]
    links = [each.attrib["href"] for each in found.iter("a")]
    assert links == [f"#{each.attrib['id']}" for each in found.iter("section")]


def test_numbers_of_a_table_are_set_to_the_right_and_long_texts_may_wrap() -> None:
    html = page.table(["name", "count", "size", "why"], [["a", 1234, "5.1 MB", "x" * 61], ["b", None, "2 B", ""]])
    cells = [(each.text, each.attrib.get("class")) for each in Tree.fromstring(html).iter("td")]
    assert cells[:3] == [("a", None), ("1,234", "number"), ("5.1 MB", "number")]
    assert cells[3][1] == "text"
    assert cells[4:7] == [("b", None), ("–", "number"), ("2 B", "number")]


def test_reports_are_files_or_lie_where_a_url_says(tmp_path: Path) -> None:
    notes: list[str] = []
    for place in (str(tmp_path / "new" / "a.html"), (tmp_path / "b.html").as_uri()):
        page.ReportFile(place).write("<p>ü</p>", notes, [])
    assert notes == [f"the report is {tmp_path}/new/a.html", f"the report is {(tmp_path / 'b.html').as_uri()}"]
    assert (tmp_path / "b.html").read_bytes() == (tmp_path / "new" / "a.html").read_bytes() == "<p>ü</p>".encode()


@pytest.mark.parametrize(
    ("place", "why"), [("reports/", "name a file"), ("nowhere://a/b.html", "cannot be opened"), ("/", "name a file")]
)
def test_places_that_cannot_be_are_refused_before_the_job(place: str, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        page.ReportFile(place)


def test_a_report_that_cannot_be_written_is_a_problem_of_the_summary(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    problems: list[str] = []
    page.ReportFile(str(tmp_path / "file" / "a.html")).write("", [], problems)
    assert [each.partition(":")[0] for each in problems] == ["the report could not be written"]


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

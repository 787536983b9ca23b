"""Verdicts over histories made by hand: one file for each class, some good ones, and what Kafka allows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from . import history_checks
from .edn import Broken, Keyword, dumps, loads, loads_all
from .history import History, from_edn, to_edn
from .history_checks import ALLOWED, check, components

FOLDER = Path(__file__).with_name("histories")
FILES = sorted(path.stem for path in FOLDER.glob("*.edn"))
CLASSES = {  # as the table of the module has them
    name
    for line in (history_checks.__doc__ or "").splitlines()
    if line.startswith("| `")
    for name in re.findall("`([^`]+)`", line.split("|")[1])
}


@pytest.mark.parametrize("name", FILES)
def test_a_history_is_judged_as_its_first_line_says(name: str) -> None:
    expected, *entries = loads_all((FOLDER / f"{name}.edn").read_text())
    report = check(entries)
    assert sorted(report.violations) == sorted(expected["violations"]), report.violations
    assert sorted(report.allowed) == sorted(expected["allowed"]), report.allowed


def test_every_class_has_a_history_of_which_it_is_the_first_verdict() -> None:
    verdicts = [loads_all((FOLDER / f"{name}.edn").read_text())[0] for name in FILES]
    assert {verdict["violations"][0] for verdict in verdicts if verdict["violations"]} == CLASSES
    assert {name for verdict in verdicts for name in verdict["allowed"]} == {*ALLOWED}
    assert sum(not verdict["violations"] for verdict in verdicts) >= 5


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith(("good", "allowed"))])
def test_a_bad_history_is_good_without_what_is_bad_in_it(name: str) -> None:
    """What was read, or where a group is, makes it bad: nobody who looks at nothing can see anything."""
    expected, *entries = loads_all((FOLDER / f"{name}.edn").read_text())
    if {*expected["violations"]} <= {"nonmonotonic-send", "int-nonmonotonic-send"}:
        return
    blind = [
        entry
        for entry in entries
        if entry["f"] in ("txn", "send") and not any(op[0] == "poll" for op in entry["value"])
    ]
    assert check(blind).violations == {}


def test_a_history_that_is_written_and_read_is_the_same() -> None:
    history = History()
    asked = history.invoke(3, Keyword("txn"), [[Keyword("send"), "orders-0", 7]], 12)
    assert history.is_open(asked)
    history.complete(asked, Keyword("ok"), [[Keyword("send"), "orders-0", [5, 7]]], 40, asked=31)
    assert to_edn(history.entries).splitlines() == [
        '{:index 0, :type :invoke, :process 3, :f :txn, :time 12, :value [[:send "orders-0" 7]]}',
        '{:index 1, :type :ok, :process 3, :f :txn, :time 40, :value [[:send "orders-0" [5 7]]], :asked 31}',
    ]
    assert from_edn(to_edn(history.entries)) == history.entries


def test_edn_is_read_as_others_write_it() -> None:
    text = '; a comment\n{:a (1 2.5 -3), :b #{true}, "c\\n\\"" nil} ,,, :next'
    assert loads_all(text) == [{"a": [1, 2.5, -3], "b": {True}, 'c\n"': None}, "next"]
    assert isinstance(loads(":a"), Keyword)
    assert loads(dumps({"a\\": [1, None, True, "x"]})) == {"a\\": [1, None, True, "x"]}
    for broken in ("[1", "{:a}", "what", '"open', "#_ 1"):
        with pytest.raises(Broken):
            loads_all(broken)


def test_circles_are_found_in_a_graph_and_nothing_else() -> None:
    assert components([(1, 2), (2, 3), (1, 3)]) == []
    assert components([(1, 2), (2, 1), (2, 3), (3, 4), (4, 5), (5, 3), (5, 6)]) == [{3, 4, 5}, {1, 2}]
    assert components([(n, n + 1) for n in range(5000)] + [(5000, 0)]) == [set(range(5001))]

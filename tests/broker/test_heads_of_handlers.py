"""What the heads of handlers say of versions is what is declared and served."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from minibroker.broker.apis import SERVED
from minibroker.protocol.registry import APIS, request_class

HANDLERS = Path(__file__).parents[2] / "minibroker" / "broker" / "handlers"
NUMBERS = {name: number for number, name in APIS.items()}
ROW = re.compile(r"^  (?P<api>[A-Z]\w+) (?P<first>\d+)-(?P<last>\d+)\b(?P<notes>.*(?:\n {10,}.*)*)", re.MULTILINE)


def rows() -> list[tuple[str, re.Match[str]]]:
    heads = [(path.stem, ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "") for path in HANDLERS.glob("*.py")]
    return [(module, row) for module, head in sorted(heads) for row in ROW.finditer(head)]


def test_there_are_heads_with_versions() -> None:
    assert {row["api"] for _, row in rows()} >= {"JoinGroup", "OffsetCommit", "ListGroups"}


@pytest.mark.parametrize(("module", "row"), rows(), ids=lambda value: value if isinstance(value, str) else value["api"])
def test_a_head_says_which_versions_there_are(module: str, row: re.Match[str]) -> None:
    number, schema = NUMBERS[row["api"]], request_class(NUMBERS[row["api"]]).schema
    first, last = int(row["first"]), int(row["last"])
    assert (schema.first_version, schema.last_version) == (first, last)
    assert SERVED[number][2].partition(".")[0] == module
    noted = [int(version) for version in re.findall(r"\bv(\d+)", row["notes"])]
    assert noted == sorted(noted)
    assert all(first <= version <= last for version in noted)

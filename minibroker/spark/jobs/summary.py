"""Summary of a job: figures, tables, problems; for people as text, for scripts as JSON.

The exit status is 0 if all went well, 1 if the job did its work and found something wrong (`problems`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any


class Table:
    """Rows under names of columns. Values are what JSON has: numbers, texts, None."""

    __slots__ = ("columns", "name", "rows", "text_rows")

    def __init__(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], text_rows: int | None = None):
        self.name = name
        self.columns = list(columns)
        self.rows = [list(row) for row in rows]
        self.text_rows = text_rows  # how many of them people are shown, None: all; scripts get all

    def as_text(self) -> str:
        cells = [self.columns, *([_shown(value) for value in row] for row in self.rows[: self.text_rows])]
        left_out = len(self.rows) - (len(cells) - 1)
        widths = [max(len(row[place]) for row in cells) for place in range(len(self.columns))]
        is_number = [
            all(isinstance(row[place], int | float | None) for row in self.rows) for place in range(len(widths))
        ]
        lines = [
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, is_number, strict=True)
            ).rstrip()
            for row in cells
        ]
        if left_out:
            lines.append(f"... and {left_out:,} more: --json has all")
        return "\n".join([self.name, *(f"  {line}" for line in lines)])


class Summary:
    """What a job did. `figures` are single values by name, in the order to show them."""

    def __init__(
        self,
        job: str,
        figures: dict[str, Any],
        tables: Sequence[Table] = (),
        problems: Sequence[str] = (),
        notes: Sequence[str] = (),
    ):
        self.job = job
        self.figures = figures
        self.tables = list(tables)
        self.problems = list(problems)  # what is wrong with the data, a sentence each
        self.notes = list(notes)  # what one should know: where a report is, what to do next

    @property
    def status(self) -> int:
        return 1 if self.problems else 0

    def table(self, name: str) -> Table:
        return next(table for table in self.tables if table.name == name)

    def as_json(self) -> str:
        tables = {
            table.name: [dict(zip(table.columns, row, strict=True)) for row in table.rows] for table in self.tables
        }
        found = {"job": self.job, **self.figures, **tables, "problems": self.problems, "notes": self.notes}
        return json.dumps(found, indent=2)

    def as_text(self) -> str:
        width = max(map(len, self.figures), default=0)
        blocks = ["\n".join(f"{name.ljust(width)}  {_shown(value)}" for name, value in self.figures.items())]
        blocks += [table.as_text() for table in self.tables if table.rows]
        blocks += ["\n".join(f"problem: {problem}" for problem in self.problems)] if self.problems else []
        blocks += ["\n".join(self.notes)] if self.notes else []
        return "\n\n".join(block for block in blocks if block)


def sums_of(rows: Iterable[Sequence[Any]]) -> dict[str, list[int]]:
    """Return sums by the first column."""
    found: dict[str, list[int]] = {}
    for name, *counts in rows:
        found[name] = [sum(pair) for pair in zip(found.get(name, [0] * len(counts)), counts, strict=True)]
    return found


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)

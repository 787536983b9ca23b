"""What make bench-growth measures costs no more lines of Python for each element because there are more of them.

What C code does is no line: a row that copies a dict of all elements is seen by `make bench-growth` alone.
"""

from __future__ import annotations

import gc

import pytest

from bench.growth.counting import Meter
from bench.growth.rows import ROWS, Row

pytestmark = [pytest.mark.slow, pytest.mark.outside]

FEW, MANY = 40, 200
LEVEL = 1.15  # how much more it may be with five times as many


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_each_element_costs_does_not_grow_with_their_number(row: Row) -> None:
    few, many = lines_of(row, FEW), lines_of(row, MANY)
    assert many < LEVEL * few


def lines_of(row: Row, count: int) -> float:
    meter = Meter(counts_lines=True)
    try:
        row.measure(count, meter)
    finally:
        gc.enable()
        gc.unfreeze()
    return meter.figures()["lines"]

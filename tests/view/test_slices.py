"""A frame, and a state, are made in slices: none is longer with more partitions, groups or viewers."""

from __future__ import annotations

import sys
from collections.abc import Generator

import pytest

from minibroker.turns import SHARE_US
from minibroker.view.selection import parse_query
from tests.broker.stretches import Counted
from tests.server.running import running

from .watching import BrowserSink

pytestmark = pytest.mark.outside
PARTITIONS = 1500
LINES_MAX = 20_000  # of Python in one share: about 1 ms on the machine of docs/benchmarks.md


def count(work: Generator[int, None, None]) -> Counted:
    """Do work as shares do it, and count the lines of each."""
    counted, before = Counted(), sys.gettrace()
    spent_us = 0
    sys.settrace(counted.trace)
    try:
        for step_us in work:
            spent_us += step_us
            if spent_us >= SHARE_US:
                counted.pause()
                spent_us = 0
    finally:
        sys.settrace(before)
    counted.pause()
    return counted


@pytest.mark.slow
async def test_no_share_is_longer_because_there_are_many_partitions() -> None:
    async with running() as node:
        node.create_topic("many", PARTITIONS)
        node.create_topic("seen", 64)
        for number in range(200):
            node.create_topic(f"t{number}", 1)
        feed = node.feed
        selection = parse_query("topics=seen&sums=1&clients=1&contents=1", may_be_all=False)
        viewers = [feed.open(selection, BrowserSink()) for _ in range(8)]
        watching = feed._watching
        assert watching is not None
        await watching.frame_made()
        watching.sums_us_max = float("inf")  # all of them at once
        works = {
            "the first frame": lambda: watching.frame(),
            "all topics": lambda: watching.frame(),
            "all rows": lambda: watching.write_all(parse_query("parts=all&sums=1", may_be_all=True), []),
        }
        for name, work in works.items():
            watching.updates._all |= {"topics", "cells", "groups", "transactions"}
            watching._slow_due_ms = 0
            for viewer in viewers:
                viewer._due_ms = 0
            counted = count(work())
            assert counted.longest_lines <= LINES_MAX, (name, counted.longest_lines, counted.all_lines)
            assert counted.stretches > 5, name
        feed.close()

"""Bugs of cleaning that simulated runs must find (tests/planting.py says what a bug is): wrong arguments for the
parts that decide, put around the functions where brokers look these up.

test_cleaning_runs.py has their budgets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minibroker.cleaner import candidates, cleaner, retention

Function = Callable[..., Any]


def cleans_above_hw(cleanable: Function) -> Function:
    return lambda log, **given: cleanable(log, **given | {"last_stable_offset": log.log_end_offset})


def cleans_the_young(cleanable: Function) -> Function:
    return lambda log, *, now_ms, **given: cleanable(log, now_ms=now_ms + log.settings.min_compaction_lag_ms, **given)


def tombstones_go_early(batch_filter: Function) -> Function:
    return lambda *given, **named: batch_filter(*given, **named | {"delete_retention_ms": 0})


def retains_above_hw(judge: Function) -> Function:
    return lambda log, **given: judge(log, **given | {"high_watermark": log.log_end_offset})


def retains_too_little(judge: Function) -> Function:
    return lambda log, *, now_ms, **given: judge(log, now_ms=now_ms + log.settings.retention_ms // 2, **given)


BUGS: dict[str, list[tuple[object, str, object]]] = {
    "cleans-above-hw": [(candidates, "cleanable", cleans_above_hw(candidates.cleanable))],
    "cleans-the-young": [(candidates, "cleanable", cleans_the_young(candidates.cleanable))],
    "retains-above-hw": [
        (retention, "expired", retains_above_hw(retention.expired)),
        (retention, "apply", retains_above_hw(retention.apply)),
    ],
    "retains-too-little": [
        (retention, "expired", retains_too_little(retention.expired)),
        (retention, "apply", retains_too_little(retention.apply)),
    ],
    "tombstones-go-early": [(cleaner, "BatchFilter", tombstones_go_early(cleaner.BatchFilter))],
}

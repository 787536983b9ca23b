"""Bugs of cleaning that a run must notice, by name: wrong arguments for the parts that decide.

What cleans knows nothing of planted bugs (minibroker/replication/bugs.py): it lies below that. So they are put around
the functions where brokers look these up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from minibroker.cleaner import candidates, cleaner, retention
from minibroker.replication import bugs

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


PLACES: dict[str, tuple[Function, object, tuple[str, ...]]] = {
    "cleans-above-hw": (cleans_above_hw, candidates, ("cleanable",)),
    "cleans-the-young": (cleans_the_young, candidates, ("cleanable",)),
    "tombstones-go-early": (tombstones_go_early, cleaner, ("BatchFilter",)),
    "retains-above-hw": (retains_above_hw, retention, ("expired", "apply")),
    "retains-too-little": (retains_too_little, retention, ("expired", "apply")),
}


@contextmanager
def planted() -> Iterator[None]:
    """Plant what `bugs.planted` names."""
    with ExitStack() as stack:
        for name in bugs.planted & PLACES.keys():
            around, module, functions = PLACES[name]
            for function in functions:
                stack.enter_context(patch.object(module, function, around(getattr(module, function))))
        yield

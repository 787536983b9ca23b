"""Garbage collection in a process that does nothing but serve: each pause is short, however much there is.

A full collection looks at every object there is, and a broker of 20,000 partitions has a million: half a second in
which nobody is served. So the collector is called often and looks at what is new only: what has outlived a full
collection, where that is much, is set aside with gc.freeze, and never looked at again.

What must hold: what lives long and goes some day (a partition, a connection, a group) goes by itself when the last who
knows of it lets go. What has been set aside and then held itself in a circle would stay for ever. Where little outlives
a collection nothing is set aside, so that circles which come and go are found, however long that goes on.
For programs of ours only: how the collector works in a process is for its owner to say, and a library keeps out of it.
"""

import gc
import sys

YOUNG_MAX = 5_000  # new objects between two collections of the youngest: every fourth collection is a full one
FROZEN_MIN = 10_000  # so many have to outlive a full collection to be set aside


def shorten_pauses() -> None:
    """Set aside what there is, and from here on what stays."""
    gc.freeze()
    if sys.version_info < (3, 14):  # from there on a collection is done in pieces anyway
        gc.set_threshold(YOUNG_MAX, 1, 1)
        gc.callbacks.append(_after)
    gc.enable()


def _after(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2 and len(gc.get_objects(2)) >= FROZEN_MIN:
        gc.freeze()

"""What becomes of brokers when the program forks: they stay with the parent, and the child knows that.

A fork has no threads and shares what is open with its parent: a stop in the child would wait for a loop that nobody
runs, and the end of the child would wake and tear down what the parent works with.
What must hold: nothing that the child does reaches a broker of the parent, other than as its client; a child holds no
port and no connection of the broker open, so the parent's stop is seen by everybody.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Running(Protocol):
    """What runs in this process and not in its forks: a Broker or a Cluster."""

    def leave_behind(self) -> tuple[object, list[int]]:
        """Return what is to be kept for ever, and the numbers of the files to be closed."""
        ...


_running: weakref.WeakSet[Running] = weakref.WeakSet()
_left: list[object] = []  # of the parent: what it works with must not be torn down here, not even as garbage


def remember(host: Running) -> None:
    """Leave a broker that runs behind when the program forks."""
    if not _is_asked and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_leave_behind)
        _is_asked.append(True)
    _running.add(host)


def forget(host: Running) -> None:
    _running.discard(host)


_is_asked: list[bool] = []


def _leave_behind() -> None:
    handles: list[int] = []
    for host in list(_running):
        left, open_handles = host.leave_behind()
        _left.append(left)
        handles += open_handles
    _running.clear()
    if handles:
        # Closed, and their numbers kept: objects that think to own them may close them once more.
        readable, writable = os.pipe()
        os.close(writable)
        for handle in handles:
            os.dup2(readable, handle, inheritable=False)
        os.close(readable)
    _keep_for_ever(_left)


def _keep_for_ever(kept: object) -> None:
    """Let an object outlive the interpreter: at its end modules are cleared, and what they hold is torn down."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))

"""How long a request holds the loop, in what can be counted: lines of Python, and bytes that are unpacked."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from minibroker.log import compression
from minibroker.turns import FIRST_US, SHARE_US, is_work


class Counted:
    """Counts the lines that are run, and the bytes that are unpacked, until it is asked."""

    def __init__(self) -> None:
        self.lines = self.all_lines = self.unpacked_bytes = 0
        self.longest_lines = self.longest_bytes = self.stretches = 0

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines += 1
        elif event == "call" and frame.f_code is compression._Output.add.__code__:
            self.unpacked_bytes += len(frame.f_locals["piece"])
        return self.trace

    def pause(self) -> None:
        self.all_lines += self.lines
        self.longest_lines = max(self.longest_lines, self.lines)
        self.longest_bytes = max(self.longest_bytes, self.unpacked_bytes)
        self.lines = self.unpacked_bytes = 0
        self.stretches += 1


def counted(work: Any) -> tuple[Any, Counted]:
    """Do the work that a handler returns when it is called, as the shares do it (turns.py).

    work: called without arguments. Return what comes of it, and what was counted between its pauses.
    """
    count = Counted()
    before = sys.gettrace()
    sys.settrace(count.trace)
    try:
        answer = work()
        if is_work(answer):
            spent_us, enough_us = 0, FIRST_US
            try:
                while True:
                    step = next(answer)
                    if not isinstance(step, int):
                        step.close()  # it is somebody else's turn
                        spent_us, step = enough_us, 0
                    spent_us += step
                    if spent_us >= enough_us:
                        count.pause()
                        spent_us, enough_us = 0, SHARE_US
            except StopIteration as end:
                answer = end.value
    finally:
        sys.settrace(before)
    count.pause()
    return answer, count

"""Recordings on disk: opened to be appended to, after what is torn at the end is cut off; read."""

from __future__ import annotations

import os

from minibroker.traffic.recording import MAGIC, BrokenRecording, Recorder, read_recording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from minibroker.clock import Clock
    from minibroker.traffic.recording import Recording


def open_recorder(path: str, clock: Clock, say: Callable[[str], None]) -> Recorder:
    """Return what writes behind what is in a file already; OSError or BrokenRecording say why not."""
    file = open(path, "ab", buffering=0)  # noqa: SIM115 - until the process ends
    try:
        found = read(path) if os.path.getsize(path) else None
        if found is None:
            file.write(MAGIC)
        elif found.torn_bytes:
            say(f"{path}: {found.torn_bytes} bytes behind the last whole frame are cut off")
            os.truncate(path, found.end)
    except BaseException:
        file.close()
        raise
    last = max((entry.connection for entry in found.entries), default=0) if found is not None else 0
    return Recorder(file, clock, say, last + 1)


def read(path: str) -> Recording:
    """Return what a file holds; OSError or BrokenRecording say why not."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return read_recording(data)
    except BrokenRecording as broken:
        raise BrokenRecording(f"{path}: {broken}") from None

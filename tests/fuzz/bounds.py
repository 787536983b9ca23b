"""What one input may cost: a target that takes longer or grows larger has failed, whatever it answers."""

from __future__ import annotations

import time
from collections.abc import Callable

CPU_SECONDS_MAX = 2.0  # of this process: other work on the machine does not count
RESIDENT_BYTES_MAX = 256 * 1024 * 1024  # by which one input may raise the process's highest mark


def bounded(check: Callable[[bytes], None], data: bytes) -> None:
    """Run a check on an input, and see to its time and memory."""
    started, resident_bytes = time.process_time(), _resident_bytes_max()
    check(data)
    seconds, grown_bytes = time.process_time() - started, _resident_bytes_max() - resident_bytes
    assert seconds < CPU_SECONDS_MAX, f"{len(data)} bytes took {seconds:.1f} s"
    assert grown_bytes < RESIDENT_BYTES_MAX, f"{len(data)} bytes made {grown_bytes >> 20} MiB more resident"


def _resident_bytes_max() -> int:
    try:
        import resource
    except ImportError:  # not on Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

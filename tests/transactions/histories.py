"""Histories of transactional ids that real brokers have written."""

from __future__ import annotations

from functools import cache

from minibroker.log.batches import batches
from tests.goldens import log_files

DIRECTORIES = ("kraft39-1-before-clean", "kraft39-3-killed", "kraft44-1")
LEVELS = {"kraft39-1-before-clean": 0, "kraft39-3-killed": 0, "kraft44-1": 2}  # of transaction.version


@cache
def history(directory: str) -> list[tuple[bytes, bytes | None]]:
    """Return keys and values of __transaction_state in the order in which they were written."""
    found = []
    for path, data in sorted(log_files(directory).items()):
        if path.startswith("__transaction_state") and path.endswith(".log"):
            for batch in batches(memoryview(data)):
                for record in batch.records():
                    found.append((bytes(record.key or b""), None if record.value is None else bytes(record.value)))
    return found

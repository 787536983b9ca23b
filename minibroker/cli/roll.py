"""`minibroker roll`: a new segment begins, so that what is in the active one can be compacted or removed."""

from __future__ import annotations

from minibroker.cli.cleaning import add_arguments, clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from minibroker.cli.cleaning import Row

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = "Begin new segments: retention and compaction leave the active one alone."


def run(options: argparse.Namespace) -> int:
    return clean("roll", options, _described)


def _described(row: Row) -> tuple[bool, str]:
    if not row["is_rolled"]:
        return False, f"no new segment: {row['reason']}"
    return True, f"a new segment begins at offset {row['base_offset']}"

"""`minibroker compact`: older values of keys are removed now, be the topic dirty enough or not."""

from __future__ import annotations

from minibroker.cli.cleaning import add_arguments, clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from minibroker.cli.cleaning import Row

__all__ = ["DESCRIPTION", "EPILOG", "add_arguments", "run"]

DESCRIPTION = "Compact topics now, without looking at min.cleanable.dirty.ratio."
EPILOG = "What is in the active segment stays as it is: `minibroker roll` begins another one."


def run(options: argparse.Namespace) -> int:
    return clean("compact", options, _described)


def _described(row: Row) -> tuple[bool, str]:
    if not row["passes"]:
        return False, f"nothing is compacted: {row['reason']}"
    whats = ("records", "bytes", "segments")
    changes = ", ".join(f"{what} {row[f'{what}_before']} -> {row[f'{what}_after']}" for what in whats)
    said = f"compacted up to offset {row['end_offset']}: {changes}"
    return True, f"{said}; {row['reason']}" if row["reason"] else said

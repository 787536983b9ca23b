"""`minibroker retention`: old segments are removed now, and not when the broker next looks for them."""

from __future__ import annotations

from minibroker.cli.cleaning import add_arguments, clean, counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from minibroker.cli.cleaning import Row

__all__ = ["DESCRIPTION", "EPILOG", "add_arguments", "run"]

DESCRIPTION = "Remove what retention.ms, retention.bytes and deleted records leave of a topic, now."
EPILOG = "Whole segments go; what is in the active one goes only if all of it is to go."


def run(options: argparse.Namespace) -> int:
    return clean("retention", options, _described)


def _described(row: Row) -> tuple[bool, str]:
    if not row["segments"]:
        return False, f"nothing is removed: {row['reason']}"
    gone = f"{counted(row['segments'], 'segment')} ({counted(row['size_bytes'], 'byte')})"
    return True, f"removed {gone}, {row['reason']}; it begins at offset {row['start_offset']} now"

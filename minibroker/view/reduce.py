"""What becomes of a state by a frame. The page has the same in page/reduce.js."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def reduce(state: Mapping[str, Any], frame: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state after a frame; the one before is as it was."""
    after = {**state, "seq": frame["seq"], "t": frame["t"], "steady_ms": frame["steady_ms"]}
    for name in frame.get("anew", ()):
        after[name] = {}
    for name, rows in frame.get("set", {}).items():
        after[name] = {**after[name], **rows}
    for name, keys in frame.get("gone", {}).items():
        after[name] = {key: row for key, row in after[name].items() if key not in keys}
    return after

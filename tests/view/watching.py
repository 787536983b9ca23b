"""Somebody who looks at a cluster: what he makes of the frames that he is sent, beside what there is to see."""

from __future__ import annotations

import json
from typing import Any

from minibroker.in_pieces import finish
from minibroker.view.feed import Feed, Watching
from minibroker.view.reduce import reduce
from minibroker.view.selection import Selection, parse_query
from minibroker.view.source import ViewSource
from minibroker.view.table import CHOSEN, LISTED, SMALL

TABLES = (*SMALL, *LISTED, *CHOSEN)


class BrowserSink:
    """What a browser would have received."""

    def __init__(self) -> None:
        self.is_full = False
        self.is_closed = False
        self.received = b""

    def send(self, data: bytes) -> None:
        assert not self.is_full, "it has to read first"
        self.received += data

    def close(self, reason: str = "") -> None:
        self.is_closed = True

    def take(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Return what has come since: event, id and data of each."""
        received, self.received = self.received.decode(), b""
        found = []
        for block in received.split("\n\n")[:-1]:
            fields = dict(line.split(": ", 1) for line in block.split("\n"))
            found.append((fields["event"], fields["id"], json.loads(fields["data"])))
        return found


class Onlooker:
    """A viewer, and the state that he has reduced his frames to."""

    def __init__(self, source: ViewSource, query: str = ""):
        self.source = source
        self.feed = Feed(source)
        self.sink = BrowserSink()
        self.selection: Selection = parse_query(query, may_be_all=False)
        self.viewer = self.feed.open(self.selection, self.sink)
        self.state: dict[str, Any] = {}
        self.said: list[dict[str, Any]] = []
        self.last_id = ""
        self.frames: list[tuple[str, dict[str, Any]]] = []  # all that has come

    def take(self) -> None:
        for event, id, data in self.sink.take():
            self.frames.append((event, data))
            self.last_id = id
            self.state = data if event == "state" else reduce(self.state, data)
            self.said += data.get("said", ())

    @property
    def watching(self) -> Watching:
        watching = self.feed._watching
        assert watching is not None
        return watching

    def look(self) -> bool:
        """Have a frame made and read now; False if one is in the making, half of it perhaps a moment ago."""
        if self.watching._is_making:
            return False
        watching = self.watching
        watching._slow_due_ms = self.viewer._due_ms = 0
        watching._summing, watching.sums_us_max = None, float("inf")
        finish(watching.frame())
        self.take()
        return True

    def truth(self) -> dict[str, Any]:
        """Return what there is to see now, as somebody sees it who comes now."""
        feed = Feed(self.source)
        watching = Watching(feed)
        try:
            finish(watching.frame())
            pieces: list[str] = []
            finish(watching.write_all(self.selection, pieces))
        finally:
            watching.end()
        found: dict[str, Any] = json.loads("".join(pieces))
        return found


def tables_of(state: dict[str, Any]) -> dict[str, Any]:
    return {name: state[name] for name in TABLES}


def differences(seen: dict[str, Any], truth: dict[str, Any]) -> list[str]:
    """Say where a state differs from another."""
    found = []
    for name in TABLES:
        for key in {*seen[name], *truth[name]}:
            before, now = seen[name].get(key), truth[name].get(key)
            if name == "contents" and now is None and key in truth["logs"]:
                continue  # its disk was damaged after it had been read
            if before != now:
                found.append(f"{name} {key}: seen {before}, and it is {now}")
    return sorted(found)

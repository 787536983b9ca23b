"""History of what clients did, as Jepsen's Kafka workload writes it: an operation is asked for, and then it is done.

    {:index 0, :type :invoke, :process 3, :f :txn, :time 12, :value [[:send "orders-0" 7]]}
    {:index 1, :type :ok, :process 3, :f :txn, :time 40, :value [[:send "orders-0" [12 7]]], :asked 31}

`:f` is `:txn` (a transaction), `:send` (records without one), `:poll` (read committed), `:poll-uncommitted`, `:assign`
(the process begins to read anew) or `:fetch-offsets`. A transaction that is `:ok` was committed, one that is `:fail`
never will be, of one that is `:info` nobody knows. Values of a key are different. What `:value` has is Jepsen's:
`[:send key value]`, with the offset if it is known `[:send key [offset value]]`, and
`[:poll {key [[offset value] ...]}]`. Beside it:

    :asked    when the commit was first asked for: nobody may see anything of it before
    :commits  {group {key offset}}, offsets that go with the transaction; its polls are what it has read of those keys
    :final    the last reads: everything there is

The `:value` of `:fetch-offsets` is `{group {key [offset index]}}`; index: of the entry with which the transaction began
that has committed it. nil: there is none.
Pure. Not here: what must hold of it (history_checks.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .edn import Keyword, dumps, loads_all

Entry = dict[str, Any]
INVOKE, OK, FAIL, INFO = (Keyword(name) for name in ("invoke", "ok", "fail", "info"))
TXN, SEND, POLL, POLL_UNCOMMITTED = (Keyword(name) for name in ("txn", "send", "poll", "poll-uncommitted"))
ASSIGN, FETCH_OFFSETS = (Keyword(name) for name in ("assign", "fetch-offsets"))


class History:
    """One, as it grows."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._open: dict[int, Entry] = {}  # by process, what it has asked for

    def invoke(self, process: int, f: Keyword, value: Any, time: int) -> Entry:
        """A process asks for something; it does one thing at a time."""
        assert process not in self._open, f"process {process} is busy"
        entry = self._add(INVOKE, process, f, value, time)
        self._open[process] = entry
        return entry

    def complete(self, invocation: Entry, outcome: Keyword, value: Any, time: int, **more: Any) -> None:
        """What a process has asked for is over."""
        assert self._open.pop(invocation["process"]) is invocation
        entry = self._add(outcome, invocation["process"], invocation["f"], value, time)
        entry.update((Keyword(name), each) for name, each in more.items())

    def is_open(self, invocation: Entry) -> bool:
        return self._open.get(invocation["process"]) is invocation

    def _add(self, outcome: Keyword, process: int, f: Keyword, value: Any, time: int) -> Entry:
        named = {"index": len(self.entries), "type": outcome, "process": process, "f": f, "time": time, "value": value}
        entry = {Keyword(name): each for name, each in named.items()}
        self.entries.append(entry)
        return entry


def to_edn(entries: Iterable[Entry]) -> str:
    """Return a history as a file has it: an operation in each line."""
    return "".join(f"{dumps(entry)}\n" for entry in entries)


def from_edn(text: str) -> list[Entry]:
    """Return the operations of a file."""
    return loads_all(text)

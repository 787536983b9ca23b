"""Checks of a history: what clients did and saw, judged as Jepsen judges Kafka; nothing else is known of the brokers.

    report = check(entries)         entries: of history.py, or read from a file
    report.violations["G1a"]        what nobody may ever see, by class
    report.allowed["G0"]            what Kafka does not promise to keep from happening

| class | what happened |
|---|---|
| `inconsistent-offsets` | one offset had two values |
| `duplicate` | one value has two offsets |
| `unwritten-read` | a value was read that nobody has written |
| `G1a` | a value, or an offset of a group, was read whose transaction was aborted |
| `precommitted-read` | ... was read before anybody had asked for the commit, or by the transaction itself |
| `G1b` | a poll went over all that a transaction has in a key, and showed only a part of it |
| `G1c` | transactions have read from each other, in a circle |
| `lost-write` | a value was written and committed, nobody ever read it, and somebody has read on behind it |
| `unseen` | a value was written and committed, and the last reads did not find it |
| `torn-transaction` | in the end only a part of a transaction is there: of its records, or only these or its offsets |
| `poll-skip`, `int-poll-skip` | between two polls, or within one, a value was passed over |
| `nonmonotonic-poll`, `int-nonmonotonic-poll` | ... reading went back |
| `nonmonotonic-send`, `int-nonmonotonic-send` | what one process has sent later lies before what it has sent earlier |
| `lost-processing`, `double-processing` | of what a group has read something led to no transaction, or to two |

Allowed, for Kafka has no isolation of writes: `G0` (transactions that write into each other's midst, in a circle),
`G1c-with-writes` (a circle of reads and writes) and `int-send-skip` (others wrote between two records of one).
Pure: a history in, a report out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from .history import ASSIGN, FAIL, FETCH_OFFSETS, INFO, INVOKE, OK, POLL, POLL_UNCOMMITTED, SEND, TXN, Entry

ALLOWED = ("G0", "G1c-with-writes", "int-send-skip")
SHOWN = 3  # places in a circle, values in a message


@dataclass(slots=True)
class Operation:
    """What a process asked for, and what came of it."""

    index: int  # of the entry that asked for it
    process: int
    f: str
    outcome: str
    end: float
    value: Any
    asked: int | None = None
    commits: dict[str, dict[str, int]] = field(default_factory=dict)
    is_final: bool = False

    def __str__(self) -> str:
        return f"{self.f} {self.index} of process {self.process}"

    def sends(self) -> Iterator[tuple[str, int | None, int]]:
        """Yield key, offset if it is known, and value."""
        for op in self.value if self.f in (TXN, SEND) else ():
            if op[0] == SEND:
                offset, value = op[2] if isinstance(op[2], list | tuple) else (None, op[2])
                yield op[1], offset, value

    def polls(self) -> Iterator[dict[str, list[tuple[int, int]]]]:
        for op in self.value if self.f in (TXN, POLL, POLL_UNCOMMITTED) else ():
            if op[0] == POLL and len(op) > 1:
                yield op[1]

    def reads(self) -> Iterator[tuple[str, int, int]]:
        """Yield key, offset and value."""
        for poll in self.polls():
            for key, found in poll.items():
                for offset, value in found:
                    yield key, offset, value


class Report:
    """What was found."""

    def __init__(self) -> None:
        self.violations: dict[str, list[str]] = {}
        self.allowed: dict[str, list[str]] = {}

    def add(self, name: str, what: str) -> None:
        kept = self.allowed if name in ALLOWED else self.violations
        kept.setdefault(name, []).append(what)


def check(entries: Iterable[Entry]) -> Report:
    """Judge a history."""
    return Checker(entries).check()


def operations(entries: Iterable[Entry]) -> list[Operation]:
    """Put together what belongs together; of what nobody knows the end of, the end may yet come."""
    found: list[Operation] = []
    under_way: dict[int, Entry] = {}
    for entry in entries:
        if entry["type"] == INVOKE:
            under_way[entry["process"]] = entry
        else:
            found.append(_operation(under_way.pop(entry["process"]), entry))
    return found + [_operation(entry, {**entry, "type": INFO, "time": float("inf")}) for entry in under_way.values()]


def _operation(invocation: Entry, entry: Entry) -> Operation:
    return Operation(
        invocation["index"],
        entry["process"],
        entry["f"],
        entry["type"],
        entry["time"],
        entry["value"],
        entry.get("asked"),
        entry.get("commits") or {},
        bool(entry.get("final")),
    )


class Checker:
    """One history."""

    def __init__(self, entries: Iterable[Entry]):
        self.report = Report()
        self.operations = operations(entries)
        self.by_index = {operation.index: operation for operation in self.operations}
        self.writers: dict[tuple[str, int], Operation] = {}  # by key and value
        self.offsets: dict[str, dict[int, int]] = defaultdict(dict)  # key -> offset -> value
        self.places: dict[tuple[str, int], int] = {}  # key and value -> offset
        self.seen: set[tuple[str, int]] = set()  # keys and values that were read as committed
        self.seen_last: set[tuple[str, int]] = set()  # in the end
        self.has_last = any(operation.is_final and operation.f == POLL for operation in self.operations)

    def check(self) -> Report:
        self._place_all()
        self._check_reads()
        self._check_offset_reads()
        self._check_lost()
        self._check_torn()
        self._check_order_of_polls()
        self._check_sends()
        self._check_parts()
        self._check_processing()
        self._check_circles()
        return self.report

    # What is where

    def _place_all(self) -> None:
        for operation in self.operations:
            for key, offset, value in operation.sends():
                self.writers[key, value] = operation
                if offset is not None:
                    self._place(key, offset, value)
        for operation in self.operations:
            for key, offset, value in operation.reads() if operation.outcome != INFO or operation.f == TXN else ():
                self._place(key, offset, value)
                if operation.f != POLL_UNCOMMITTED:
                    self.seen.add((key, value))
                    if operation.is_final:
                        self.seen_last.add((key, value))

    def _place(self, key: str, offset: int, value: int) -> None:
        before = self.offsets[key].setdefault(offset, value)
        if before != value:
            self.report.add("inconsistent-offsets", f"{key} at {offset} is {before} and {value}")
        other = self.places.setdefault((key, value), offset)
        if other != offset:
            self.report.add("duplicate", f"{key}: {value} is at {other} and at {offset}")

    # Reads

    def _check_reads(self) -> None:
        for reader in self.operations:
            if reader.f == POLL_UNCOMMITTED:
                continue
            for key, offset, value in reader.reads():
                writer = self.writers.get((key, value))
                what = f"{reader} has read {value} at {offset} of {key}"
                if writer is None:
                    self.report.add("unwritten-read", f"{what}, which nobody has written")
                else:
                    self._check_dirty(reader, writer, what)

    def _check_dirty(self, reader: Operation, writer: Operation, what: str) -> None:
        if writer.f == SEND:
            if writer.outcome == FAIL:
                self.report.add("G1a", f"{what}, and {writer} has failed")
        elif writer.outcome == FAIL:
            self.report.add("G1a", f"{what}, and {writer} was aborted")
        elif writer is reader:
            self.report.add("precommitted-read", f"{what}, which is its own")
        elif writer.asked is not None and reader.end < writer.asked:
            self.report.add("precommitted-read", f"{what} at {reader.end}, the commit was asked for at {writer.asked}")

    def _check_offset_reads(self) -> None:
        for reader in self.operations:
            for group, key, found in _offsets_in(reader):
                writer = self.by_index.get(found[1]) if found is not None else None
                if found is None:
                    continue
                what = f"{reader} found offset {found[0]} of {group} in {key}"
                if writer is None or writer.commits.get(group, {}).get(key, found[0]) != found[0]:
                    self.report.add("unwritten-read", f"{what}, which nobody has committed")
                else:
                    self._check_dirty(reader, writer, what)

    # What is there in the end

    def _check_lost(self) -> None:
        highest: dict[str, int] = {}
        for key, value in self.seen:
            highest[key] = max(highest.get(key, -1), self.places[key, value])
        for (key, value), writer in self.writers.items():
            if writer.outcome != OK or (key, value) in self.seen_last:
                continue
            offset = self.places.get((key, value))
            what = f"{value} of {writer} in {key}, at {offset}"
            if (key, value) not in self.seen and offset is not None and offset < highest.get(key, -1):
                self.report.add("lost-write", f"{what}: was never read, and {highest[key]} was")
            elif self.has_last:
                self.report.add("unseen", f"{what}: was not among the last reads")

    def _check_torn(self) -> None:
        if not self.has_last:
            return
        last = {
            (group, key): found for each in self.operations if each.is_final for group, key, found in _offsets_in(each)
        }
        for transaction in self.operations:
            values = [(key, value) for key, _, value in transaction.sends()]
            there = [each for each in values if each in self.seen_last]
            if transaction.f != TXN or not values:
                continue
            if 0 < len(there) < len(values):
                missing = [each for each in values if each not in self.seen_last]
                self.report.add("torn-transaction", f"{transaction}: {there[:SHOWN]} are there, {missing[:SHOWN]} not")
            for group, key, offset in _commits_of(transaction):
                if (group, key) not in last:
                    continue
                found = last[group, key]
                what = f"offset {offset} of {group} in {key}"
                if there and (found is None or found[0] < offset):
                    self.report.add("torn-transaction", f"{transaction}: its records are there, not {what}")
                if not there and found is not None and found[1] == transaction.index:
                    self.report.add("torn-transaction", f"{transaction}: {what} is there, not its records")

    # Order

    def _check_order_of_polls(self) -> None:
        committed: dict[str, list[int]] = defaultdict(list)
        for key, offsets in self.offsets.items():
            committed[key] = sorted(offset for offset, value in offsets.items() if self._is_committed(key, value))
        known = defaultdict(list, {key: sorted(offsets) for key, offsets in self.offsets.items()})
        positions: dict[tuple[int, str], int] = {}  # of processes in keys: the offset that was read last
        for operation in self.operations:  # in the order in which they ended
            if operation.f == ASSIGN:
                for each in [each for each in positions if each[0] == operation.process]:
                    del positions[each]
            order = known if operation.f == POLL_UNCOMMITTED else committed
            before = dict(positions) if operation.f == TXN and operation.outcome != OK else None
            read: set[str] = set()
            for poll in operation.polls():
                for key, found in poll.items():
                    self._follow(operation, key, [offset for offset, _ in found], order[key], positions, read)
            if before is not None:  # it has to read that again
                for key in read:
                    positions.pop((operation.process, key), None)

    def _follow(
        self,
        operation: Operation,
        key: str,
        offsets: list[int],
        order: list[int],
        positions: dict[tuple[int, str], int],
        read: set[str],
    ) -> None:
        """Compare where somebody reads with where it was before."""
        place = (operation.process, key)
        for offset in offsets:
            before, prefix = positions.get(place), "int-" if key in read else ""
            if before is not None and offset <= before:
                self.report.add(f"{prefix}nonmonotonic-poll", f"{operation}: {key} at {offset} after {before}")
            elif before is not None:
                skipped = order[bisect_right(order, before) : bisect_left(order, offset)]
                if skipped:
                    what = f"{key} at {offset} after {before}, and there is {skipped[:SHOWN]}"
                    self.report.add(f"{prefix}poll-skip", f"{operation}: {what}")
            positions[place] = offset
            read.add(key)

    def _is_committed(self, key: str, value: int) -> bool:
        writer = self.writers.get((key, value))
        return (key, value) in self.seen or (writer is not None and writer.outcome == OK)

    def _check_sends(self) -> None:
        last: dict[tuple[int, str], tuple[int, Operation]] = {}
        for operation in sorted(self.operations, key=lambda each: each.index):
            for key, offset, _ in operation.sends():
                if offset is None:
                    continue
                before, sender = last.get((operation.process, key), (-1, operation))
                prefix = "int-" if sender is operation else ""
                if offset <= before:
                    self.report.add(f"{prefix}nonmonotonic-send", f"{operation}: {key} at {offset} after {before}")
                elif (
                    sender is operation
                    and before >= 0
                    and any(each in self.offsets[key] for each in range(before + 1, offset))
                ):
                    self.report.add("int-send-skip", f"{operation}: others wrote to {key} from {before} to {offset}")
                last[operation.process, key] = (offset, operation)

    def _check_parts(self) -> None:
        """G1b: a poll that has gone over the whole of a transaction in a key has all of it, or nothing."""
        parts: dict[tuple[int, str], list[int]] = defaultdict(list)  # by transaction and key
        for (key, value), writer in self.writers.items():
            if writer.f == TXN and (key, value) in self.places:
                parts[writer.index, key].append(self.places[key, value])
        for reader in self.operations:
            for poll in reader.polls() if reader.f != POLL_UNCOMMITTED else ():
                for key, found in poll.items():
                    offsets = {offset for offset, _ in found}
                    for index in {self.writers[key, value].index for _, value in found if (key, value) in self.writers}:
                        whole = [each for each in parts[index, key] if each > min(offsets)]
                        missing = sorted(set(whole) - offsets)
                        if missing and max(offsets) > missing[-1]:
                            what = f"{key} without {missing[:SHOWN]} of {self.by_index[index]}"
                            self.report.add("G1b", f"{reader} has read {what}")

    # Processing

    def _check_processing(self) -> None:
        """Each record before a group's offset was read by exactly one of the transactions that count."""
        last = {
            (group, key): found for each in self.operations if each.is_final for group, key, found in _offsets_in(each)
        }
        for (group, key), found in last.items():
            end = 0 if found is None else found[0]
            readers: dict[int, list[Operation]] = defaultdict(list)
            for transaction in self.operations:
                if key in transaction.commits.get(group, {}) and self._counts(transaction):
                    for read_key, offset, _ in transaction.reads():
                        if read_key == key:
                            readers[offset].append(transaction)
            for offset, transactions in readers.items():
                if len(transactions) > 1:
                    who = " and ".join(map(str, transactions))
                    self.report.add("double-processing", f"{group}: {key} at {offset} was processed by {who}")
            for offset, value in sorted(self.offsets[key].items()):
                if offset < end and (key, value) in self.seen_last and offset not in readers:
                    self.report.add("lost-processing", f"{group}: {key} at {offset} was passed over, up to {end}")

    def _counts(self, transaction: Operation) -> bool:
        """Whether a transaction was committed, as far as one can see."""
        if transaction.outcome == OK:
            return True
        return any((key, value) in self.seen_last for key, _, value in transaction.sends())

    # Circles

    def _check_circles(self) -> None:
        writes: set[tuple[int, int]] = set()  # from one transaction to another
        reads: set[tuple[int, int]] = set()
        for key, offsets in self.offsets.items():
            order = [
                self.writers[key, value]
                for _, value in sorted(offsets.items())
                if (key, value) in self.writers and self._is_committed(key, value)
            ]
            writes.update((one.index, other.index) for one, other in pairwise(order) if one is not other)
        for reader in self.operations:
            if reader.f != TXN or not self._counts(reader):
                continue
            for key, _, value in reader.reads():
                writer = self.writers.get((key, value))
                if writer is not None and writer is not reader:
                    reads.add((writer.index, reader.index))
        self._tell_circles("G1c", reads, lambda edge: True)
        self._tell_circles("G0", writes, lambda edge: True)
        self._tell_circles("G1c-with-writes", reads | writes, lambda edge: edge in reads, writes - reads)

    def _tell_circles(
        self,
        name: str,
        edges: set[tuple[int, int]],
        is_wanted: Callable[[tuple[int, int]], bool],
        also: set[tuple[int, int]] | None = None,
    ) -> None:
        """Tell of each component that has a circle, with an edge that is wanted and one of the others too."""
        for component in components(edges):
            inner = [edge for edge in edges if edge[0] in component and edge[1] in component]
            if any(map(is_wanted, inner)) and (also is None or any(edge in also for edge in inner)):
                shown = ", ".join(str(self.by_index[index]) for index in sorted(component)[:SHOWN])
                self.report.add(name, f"{len(component)} transactions: {shown}")


def _offsets_in(operation: Operation) -> Iterator[tuple[str, str, tuple[int, int] | None]]:
    """Yield group, key, and what was found: offset and the transaction that committed it."""
    if operation.f == FETCH_OFFSETS and operation.outcome == OK:
        for group, offsets in operation.value.items():
            for key, found in offsets.items():
                yield group, key, found


def _commits_of(operation: Operation) -> Iterator[tuple[str, str, int]]:
    for group, offsets in operation.commits.items():
        for key, offset in offsets.items():
            yield group, key, offset


def components(edges: Iterable[tuple[int, int]]) -> list[set[int]]:
    """Return the strongly connected components that have more than one node (Tarjan's algorithm, without recursion)."""
    following: dict[int, list[int]] = defaultdict(list)
    for source, target in sorted(edges):
        following[source].append(target)
    numbers: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[set[int]] = []
    for root in list(following):
        if root in numbers:
            continue
        path: list[tuple[int, Iterator[int]]] = [(root, iter(following[root]))]
        numbers[root] = lowest[root] = len(numbers)
        stack.append(root)
        on_stack.add(root)
        while path:
            node, targets = path[-1]
            for target in targets:
                if target not in numbers:
                    numbers[target] = lowest[target] = len(numbers)
                    stack.append(target)
                    on_stack.add(target)
                    path.append((target, iter(following.get(target, ()))))
                    break
                if target in on_stack:
                    lowest[node] = min(lowest[node], numbers[target])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
                if lowest[node] == numbers[node]:
                    component = set()
                    while node not in component:
                        component.add(other := stack.pop())
                        on_stack.discard(other)
                    if len(component) > 1:
                        found.append(component)
    return found

"""The parts about consumer groups, for every client: `python group_script.py BOOTSTRAP PREFIX TOPIC STEPS VARIANT
MEMBERS...`, where MEMBERS is the command of the client's own program (group_member.py here, and those in Java, Go and
Node), which makes group members as it is told on its input and says on its output what happens to them.

Each step plays a part with two members and compares: who holds which partition, which records arrive, what is
committed. It prints one JSON line a step; the first difference ends it with exit status 1 and a message on stderr.
README.md has the list of steps and the words that go to and fro.

Nothing waits for a time to pass: `wait` takes what the programs say until the wished state is there, or fails.
Not here: what a client is called and how.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

PARTITIONS = 4
RECORDS_EACH = 10  # the value of record O in partition P is "P-O"
ALL = frozenset(range(PARTITIONS))
COMMITTED = {0: 3, 1: 7, 2: 0, 3: 9}  # at least one record is left in each partition, so that its first is seen
SESSION_MS = 30_000  # longer than SECONDS_MAX: who leaves must say so to be replaced in time
CRASH_SESSION_MS = 6_000  # the shortest that Kafka allows by default
CRASH_SECONDS_MIN = 4.0  # less would mean that the closed connection was taken for a departure
SECONDS_MAX = 28.0  # machines are busy now and then
QUIET_SECONDS = 1.5  # three heartbeats of the consumer protocol, five of the classic one
EAGER = ("range", "roundrobin", "sticky")


class Difference(Exception):
    """What is is not what should be."""


class Program:
    """A process that holds members; all that it says goes into a queue shared by all programs."""

    def __init__(self, command: list[str], said: queue.Queue[tuple[Program, dict[str, Any]]]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.said = said
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.said.put((self, json.loads(line) | {"heard_at": time.monotonic()}))
        self.said.put((self, {"event": "end"}))

    def tell(self, *words: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(" ".join(words) + "\n")

    def kill(self) -> None:
        """End it as a crash would: the kernel closes its connections, and nobody is told."""
        self.process.kill()
        self.process.wait()


class Member:
    """A member of a group as its client sees it."""

    def __init__(self, name: str, group: str, program: Program) -> None:
        self.name, self.group, self.program = name, group, program
        self.holds: set[int] = set()
        self.changes: list[tuple[str, tuple[int, ...]]] = []  # every call of its rebalance listener that says something
        self.changed_at = 0.0  # of time.monotonic()
        self.records: list[tuple[int, int]] = []  # partition and offset, as they came
        self.answers: list[dict[str, Any]] = []
        self.going = False  # its partitions may be another's before it says that it has gone

    def hear(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind in ("assigned", "revoked"):
            partitions = tuple(sorted(event["partitions"]))
            self.changed_at = event["heard_at"]
            if partitions:
                self.changes.append((kind, partitions))
            self.holds = self.holds | {*partitions} if kind == "assigned" else self.holds - {*partitions}
        elif kind == "record":
            place = event["partition"], event["offset"]
            expect(f"{self.name}: value at {place}", event["value"], f"{place[0]}-{place[1]}")
            self.records.append(place)
        elif kind == "error":
            raise Difference(f"{self.name}: {event['text']}")
        else:
            self.answers.append(event)

    def revoked(self, since: int) -> list[int]:
        return sorted(p for kind, partitions in self.changes[since:] if kind == "revoked" for p in partitions)


def expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise Difference(f"{what}: got {got}, wanted {wanted}")


def records_from(starts: dict[int, int]) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, start in starts.items() for offset in range(start, RECORDS_EACH)]


def places(offsets: dict[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in offsets.items())


class Script:
    """The steps, one method each, but for the assignors, which share `rebalance`."""

    def __init__(self, command: list[str], prefix: str, topic: str, steps: list[str], protocol: str) -> None:
        self.said: queue.Queue[tuple[Program, dict[str, Any]]] = queue.Queue()
        self.prefix, self.topic, self.protocol = prefix, topic, protocol
        self.assignor = next(step for step in steps if step in (*EAGER, "cooperative", "uniform"))
        self.members: dict[str, Member] = {}
        self.step = ""
        self.program = Program(command, self.said)
        self.second = Program(command, self.said) if "crash" in steps else None
        self.programs = [one for one in (self.program, self.second) if one]
        self.versions: list[dict[str, Any]] = []

    # The machinery

    def wait(self, what: str, reached: Callable[[], object], seconds_max: float = SECONDS_MAX) -> None:
        """Take what the programs say until the state is reached."""
        deadline = time.monotonic() + seconds_max
        while not reached():
            try:
                program, event = self.said.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise Difference(f"{what}: not within {seconds_max} s; {self.state()}") from None
            self.hear(program, event)

    def hear(self, program: Program, event: dict[str, Any]) -> None:
        if "client" in event:
            self.versions.append(event)
        elif event["event"] == "end":
            if program in self.programs:
                raise Difference(f"the program of {program.process.args} ended by itself; {self.state()}")
        elif member := self.members.get(event["member"]):
            member.hear(event)
            if event["event"] == "assigned":
                self.expect_one_owner(member)

    def expect_one_owner(self, member: Member) -> None:
        # Of another process it is not known whether it spoke earlier or later.
        for other in self.members.values():
            if other is member or other.group != member.group or other.program is not member.program or other.going:
                continue
            if both := other.holds & member.holds:
                raise Difference(f"{other.name} and {member.name} hold {sorted(both)} at the same time; {self.state()}")

    def state(self) -> str:
        return "; ".join(
            f"{one.name} holds {sorted(one.holds)} after {one.changes}, has read {len(one.records)}"
            for one in self.members.values()
        )

    def join(self, name: str, assignor: str = "", program: Program | None = None, **more: object) -> Member:
        group = f"{self.prefix}-{self.step}"
        member = Member(f"{name}-{self.step}", group, program or self.program)
        self.members[member.name] = member
        settings = {"group": group, "topic": self.topic, "protocol": self.protocol, "session": SESSION_MS}
        settings |= {"assignor": assignor or self.assignor, **more}
        member.program.tell("join", member.name, *(f"{key}={value}" for key, value in settings.items()))
        return member

    def ask(self, member: Member, word: str, *words: str) -> dict[str, Any]:
        count = len(member.answers)
        member.program.tell(word, member.name, *words)
        self.wait(f"{member.name}: {word}", lambda: len(member.answers) > count)
        return member.answers[-1]

    def leave(self, *members: Member) -> None:
        for member in members:
            member.going = True
            self.ask(member, "leave")
            del self.members[member.name]

    def wait_holds(self, member: Member, wanted: frozenset[int] | set[int]) -> None:
        self.wait(f"{member.name} holds {sorted(wanted)}", lambda: member.holds == wanted)

    def wait_split(self, a: Member, b: Member) -> None:
        """Until the two hold half of the partitions each, disjoint and complete."""
        self.wait(
            f"{a.name} and {b.name} share all partitions",
            lambda: len(a.holds) == len(b.holds) == PARTITIONS // 2 and a.holds | b.holds == ALL,
        )

    def expect_quiet(self, member: Member) -> None:
        """For as long as three heartbeats nothing happens to a member."""
        changes, deadline = list(member.changes), time.monotonic() + QUIET_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            with suppress(queue.Empty):
                self.hear(*self.said.get(timeout=left))
        expect(f"{member.name}: changes", member.changes, changes)

    def wait_records(self, member: Member, wanted: list[tuple[int, int]], since: int = 0) -> int:
        """Until it has read that many; then they are exactly these, in order of offset in each partition."""
        self.wait(f"{member.name} has read {len(wanted)} records", lambda: len(member.records) >= since + len(wanted))
        got = sorted(member.records[since:], key=lambda place: place[0])  # stable: offsets stay as they came
        expect(f"{member.name}: records", got, sorted(wanted))
        return len(wanted)

    # The steps

    def run(self, step: str) -> int:
        self.step = step
        if step in (*EAGER, "cooperative", "uniform"):
            return self.rebalance(step)
        return getattr(self, step)()

    def rebalance(self, assignor: str) -> int:
        """One joins and has all; another arrives and they share; it departs and the first has all again."""
        a = self.join("a", assignor)
        self.wait_holds(a, ALL)
        count = self.wait_records(a, records_from(dict.fromkeys(ALL, 0)))
        before = len(a.changes)
        b = self.join("b", assignor)
        self.wait_split(a, b)
        count += self.wait_records(b, records_from(dict.fromkeys(b.holds, 0)))
        if assignor in EAGER and self.protocol == "classic":
            expect(f"{a.name}: what it gave up when another arrived", {*a.revoked(before)}, ALL)
        else:
            expect(f"{a.name}: what it gave up when another arrived", a.revoked(before), sorted(b.holds))
        before = len(a.changes)
        self.leave(b)
        self.wait_holds(a, ALL)
        if assignor not in EAGER or self.protocol == "consumer":
            expect(f"{a.name}: what it gave up when another departed", a.revoked(before), [])
        self.leave(a)
        return count

    def begin_crash(self) -> None:
        """Two share; then the process of one is killed, while the other steps have yet to come."""
        self.step = "crash"
        a = self.join("a", session=CRASH_SESSION_MS)
        self.wait_holds(a, ALL)
        b = self.join("b", session=CRASH_SESSION_MS, program=self.second)
        self.wait_split(a, b)
        assert self.second
        self.programs.remove(self.second)
        del self.members[b.name]
        self.crashed_at = time.monotonic()
        self.second.kill()

    def crash(self) -> int:
        """The one that is left has all partitions again, but not before the session timeout."""
        a = self.members["a-crash"]
        self.wait_holds(a, ALL)
        seconds = a.changed_at - self.crashed_at
        if seconds < CRASH_SECONDS_MIN:
            raise Difference(f"{a.name} had all partitions {seconds:.1f} s after the other's crash: no session timeout")
        self.leave(a)
        return 0

    def static(self) -> int:
        """One with an instance id goes and comes back: it has its old partitions, and the other notices nothing."""
        ids = [f"{self.prefix}-{name}" for name in "ab"]
        a = self.join("a", instance=ids[0])
        self.wait_holds(a, ALL)
        b = self.join("b", instance=ids[1])
        self.wait_split(a, b)
        held, changes = b.holds, list(a.changes)
        self.leave(b)
        self.expect_quiet(a)
        b = self.join("b", instance=ids[1])
        self.wait_holds(b, held)
        # An eager rebalance could not have ended, nor its partitions have come back, without a word from the other.
        count = self.wait_records(b, records_from(dict.fromkeys(b.holds, 0)))
        expect(f"{b.name}: what it gave up since it came back", b.revoked(0), [])
        expect(f"{a.name}: changes", a.changes, changes)
        self.leave(b, a)
        return count

    def resume(self) -> int:
        """One reads all, commits less and leaves; the next reads exactly from there."""
        a = self.join("a")
        self.wait_records(a, records_from(dict.fromkeys(ALL, 0)))
        expect("committed at first", self.ask(a, "committed")["offsets"], {})
        self.ask(a, "commit", f"at={places(COMMITTED)}")
        wanted = {str(partition): offset for partition, offset in COMMITTED.items()}
        expect("committed", self.ask(a, "committed")["offsets"], wanted)
        self.leave(a)
        b = self.join("b")
        count = self.wait_records(b, records_from(COMMITTED))
        expect("committed, says the next", self.ask(b, "committed")["offsets"], wanted)
        self.leave(b)
        return count

    def seek(self) -> int:
        """Back to the middle of one partition and to the start of another: these are read again from there."""
        a = self.join("a")
        count = self.wait_records(a, records_from(dict.fromkeys(ALL, 0)))
        self.ask(a, "seek", f"to={places({0: 5, 2: 0})}")
        again = self.wait_records(a, records_from({0: 5, 2: 0}), since=count)
        self.leave(a)
        return again


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def main(bootstrap: str, prefix: str, topic: str, steps: str, variant: str, *command: str) -> int:
    wanted = steps.split(",")
    protocol, told = ("consumer", "") if variant == "consumer" else ("classic", variant)
    script = Script([*command, bootstrap, told], prefix, topic, wanted, protocol)
    step = "start"
    try:
        script.wait("the programs start", lambda: len(script.versions) == len(script.programs))
        say(client=script.versions[0]["client"], version=script.versions[0]["version"])
        if "crash" in wanted:
            step = "crash"
            script.begin_crash()
        for step in wanted:
            start = time.perf_counter()
            records = script.run(step)
            say(step=step, records=records, ms=round((time.perf_counter() - start) * 1000))
    except Difference as difference:
        print(f"step {step}: {difference}", file=sys.stderr)
        return 1
    finally:
        for program in script.programs:
            program.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

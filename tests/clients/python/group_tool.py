"""Kafka's own kafka-consumer-groups: `python group_tool.py BOOTSTRAP PREFIX TOPIC STEPS VARIANT TOOL...`, where TOOL is
the command of java/tool. What it prints is compared with what two members of a group (confluent-kafka, of the classic
protocol or, with the variant `consumer`, of the consumer protocol) hold and have committed.

Output as that of group_script.py. A step takes the group as the one before left it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from group_script import ALL, RECORDS_EACH, Difference, Member, Script, expect, records_from, say

DONE = "-- done --"
COMMITTED = {0: 1, 1: 2, 2: 3, 3: 4}
# What each form of a reset makes of COMMITTED; all records are younger than the one date and older than the other.
RESETS = {
    "--to-earliest": dict.fromkeys(ALL, 0),
    "--to-latest": dict.fromkeys(ALL, RECORDS_EACH),
    "--to-current": COMMITTED,
    "--to-offset 4": dict.fromkeys(ALL, 4),
    "--shift-by 2": {partition: offset + 2 for partition, offset in COMMITTED.items()},
    "--shift-by -3": {partition: max(0, offset - 3) for partition, offset in COMMITTED.items()},
    "--to-datetime 2000-01-01T00:00:00.000": dict.fromkeys(ALL, 0),
    "--to-datetime 2100-01-01T00:00:00.000": dict.fromkeys(ALL, RECORDS_EACH),
    "--by-duration P1D": dict.fromkeys(ALL, 0),
}


class Tool:
    """The tool, one command after another."""

    def __init__(self, command: list[str], bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        assert self.process.stdout
        self.version = self.process.stdout.readline().strip()

    def __call__(self, words: str) -> str:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"--bootstrap-server {self.bootstrap} {words}\n")
        said = []
        for line in self.process.stdout:
            if line.strip() == DONE:
                return "".join(said)
            said.append(line)
        raise Difference(f"{words}: the tool gave up: {''.join(said)[:1000]}")


def rows(text: str, *columns: str) -> list[tuple[str, ...]]:
    """Return the named columns of the table that ends the text, whose cells are single words.

    Lines do not count: 3.9 writes the rows of some tables one behind the other.
    """
    lines = [line.split() for line in text.replace("COORDINATOR (ID)", "COORDINATOR ID").splitlines()]
    start = next((index for index, words in enumerate(lines) if {*columns} <= {*words}), None)
    if start is None:
        raise Difference(f"no columns {columns} in: {text}")
    words = [word for line in lines[start:] for word in line]
    width = next((index for index, word in enumerate(words) if not is_title(word)), len(words))
    if len(words) % width:
        raise Difference(f"not {width} cells in each row: {text}")
    places = [words.index(column) for column in columns]
    table = [words[index : index + width] for index in range(width, len(words), width)]
    return sorted(tuple(row[place] for place in places) for row in table)


def is_title(word: str) -> bool:
    return word == word.upper() and word.lstrip("#")[:1].isalpha()


class Walk:
    """The life of a group as the tool shows it."""

    def __init__(self, script: Script, tool: Tool) -> None:
        self.script, self.tool, self.topic = script, tool, script.topic
        script.step = "tool"
        self.a = script.join("a", "range")
        self.group = self.a.group
        script.wait_holds(self.a, ALL)
        self.b = script.join("b", "range")
        script.wait_split(self.a, self.b)
        for member in (self.a, self.b):
            self.commit(member)

    def commit(self, member: Member) -> None:
        at = ",".join(f"{partition}:{COMMITTED[partition]}" for partition in sorted(member.holds))
        self.script.ask(member, "commit", f"at={at}")

    def describe(self, more: str = "") -> str:
        return self.tool(f"--describe --group {self.group} {more}".rstrip())

    def expect_committed(self, wanted: dict[int, int]) -> int:
        columns = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
        end = RECORDS_EACH
        lines = [(self.topic, str(p), str(offset), str(end), str(end - offset)) for p, offset in wanted.items()]
        expect("offsets", rows(self.describe(), *columns), sorted(lines))
        return len(lines)

    def expect_refused(self, words: str, why: str) -> None:
        said = self.tool(words)
        if why not in said:
            raise Difference(f"{words}: wanted a refusal with {why!r}, got {said}")

    # The steps

    def list(self) -> int:
        kind = "Consumer" if self.script.protocol == "consumer" else "Classic"
        if self.group not in self.tool("--list").split():
            raise Difference(f"{self.group} is not listed")
        expect("state", dict(rows(self.tool("--list --state"), "GROUP", "STATE")).get(self.group), "Stable")
        expect("type", dict(rows(self.tool("--list --type"), "GROUP", "TYPE")).get(self.group), kind)
        listed = rows(self.tool("--list --state empty"), "GROUP", "STATE")
        expect("listed as empty", [group for group, _ in listed if group == self.group], [])
        return 0

    def offsets(self) -> int:
        """Offsets, lag and owner of each partition."""
        count = self.expect_committed(COMMITTED)
        owners = rows(self.describe(), "PARTITION", "CONSUMER-ID", "HOST")
        expect("hosts", {host for _, _, host in owners}, {"/127.0.0.1"})
        by_owner: dict[str, set[int]] = {}
        for partition, owner, _ in owners:
            by_owner.setdefault(owner, set()).add(int(partition))
        held = sorted([sorted(self.a.holds), sorted(self.b.holds)])
        expect("partitions by owner", sorted(sorted(one) for one in by_owner.values()), held)
        return count

    def members(self) -> int:
        found = rows(self.describe("--members"), "GROUP", "CLIENT-ID", "#PARTITIONS")
        expect("members", found, [(self.group, "rdkafka", "2")] * 2)
        said = self.describe("--members --verbose")
        for member in (self.a, self.b):
            numbers = ",".join(str(partition) for partition in sorted(member.holds))
            if f"({numbers})" not in said and f"{self.topic}:{numbers}" not in said:  # as 3.9 and as 4.x write it
                raise Difference(f"{self.topic} {numbers} of {member.name} is not in: {said}")
        return 2

    def state(self) -> int:
        found = rows(self.describe("--state"), "GROUP", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
        expect("state", found, [(self.group, "range", "Stable", "2")])
        return 0

    def refused(self) -> int:
        """What may not be done to a group with members."""
        reset = f"--reset-offsets --group {self.group} --topic {self.topic} --to-earliest"
        self.expect_refused(f"{reset} --dry-run", "the current state is Stable")
        self.expect_refused(f"{reset} --execute", "the current state is Stable")
        self.expect_refused(f"--delete --group {self.group}", "GroupNotEmptyException")
        self.expect_refused(f"--delete-offsets --group {self.group} --topic {self.topic}", "GroupSubscribedToTopic")
        return self.expect_committed(COMMITTED)

    def empty(self) -> int:
        """The members leave: the offsets stay."""
        self.script.leave(self.b, self.a)
        # The column before them is empty for a classic group, as 3.9 has it.
        expect("state and members", self.describe("--state").split()[-2:], ["Empty", "0"])
        expect("members", rows(self.describe("--members"), "GROUP", "CLIENT-ID", "#PARTITIONS"), [])
        return self.expect_committed(COMMITTED)

    def reset(self) -> int:
        """Each form is shown without changing anything, then carried out; the next member reads from there."""
        scope = f"--reset-offsets --group {self.group} --topic {self.topic}"
        columns = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
        for form, wanted in RESETS.items():
            lines = sorted((self.group, self.topic, str(p), str(offset)) for p, offset in wanted.items())
            expect(f"{form}: planned", rows(self.tool(f"{scope} {form} --dry-run"), *columns), lines)
        self.expect_committed(COMMITTED)
        for form in ("--to-latest", "--shift-by -4", "--to-earliest"):
            self.tool(f"{scope} {form} --execute")
        self.expect_committed(dict.fromkeys(ALL, 0))
        self.tool(f"--reset-offsets --group {self.group} --topic {self.topic}:1,3 --to-offset 7 --execute")
        now = {0: 0, 1: 7, 2: 0, 3: 7}
        self.expect_committed(now)
        c = self.script.join("c", "range")
        count = self.script.wait_records(c, records_from(now))
        self.script.leave(c)
        return count

    def delete_offsets(self) -> int:
        self.tool(f"--delete-offsets --group {self.group} --topic {self.topic}:1")
        return self.expect_committed({0: 0, 2: 0, 3: 7})

    def delete(self) -> int:
        said = self.tool(f"--delete --group {self.group}")
        if "was successful" not in said:
            raise Difference(f"not deleted: {said}")
        expect("listed once more", self.group in self.tool("--list").split(), False)
        self.expect_refused(f"--delete --group {self.group}", "GroupIdNotFoundException")
        return 0


def main(bootstrap: str, prefix: str, topic: str, steps: str, variant: str, *command: str) -> int:
    protocol = "consumer" if variant == "consumer" else "classic"
    program = [sys.executable, str(Path(__file__).with_name("group_member.py")), "confluent", bootstrap]
    script = Script(program, prefix, topic, ["range"], protocol)
    tool = Tool([*command], bootstrap)
    step = "start"
    try:
        say(client="kafka-consumer-groups", version=tool.version)
        walk = Walk(script, tool)
        for step in steps.split(","):
            start = time.perf_counter()
            records = getattr(walk, step.replace(" ", "_"))()
            say(step=step, records=records, ms=round((time.perf_counter() - start) * 1000))
    except Difference as difference:
        print(f"step {step}: {difference}", file=sys.stderr)
        return 1
    finally:
        script.program.kill()
        tool.process.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

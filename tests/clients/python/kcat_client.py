"""kcat, one process a call; KCAT names the program. It cannot write timestamps or null headers, nor manage topics."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

from script import Difference, Record

READ_SECONDS_MAX = 20
KEY_END, RECORD_END = b"<key/>", b"<record/>"
PROGRAM = os.environ.get("KCAT", "kcat")


class Client:
    """Records go in by delimiters, large ones by files, and come out with their lengths in front."""

    text_headers_only = True

    def __init__(self, bootstrap: str, variant: str) -> None:
        assert not variant
        self.bootstrap = bootstrap
        version = subprocess.run([PROGRAM, "-V"], capture_output=True, text=True, check=True)
        self.version = re.findall(r"Version ([\d.]+)", version.stdout + version.stderr)[0]

    def close(self) -> None:
        pass

    def run(self, *arguments: str, given: bytes = b"") -> bytes:
        command = [PROGRAM, "-b", self.bootstrap, *arguments]
        done = subprocess.run(command, input=given, capture_output=True, timeout=READ_SECONDS_MAX)
        if done.returncode:
            raise Difference(f"{' '.join(arguments)}: exit status {done.returncode}: {done.stderr.decode()}")
        return done.stdout

    def produce(self, topic, partition, records, codec="none", acks=-1, idempotent=False):
        how = [
            "-P",
            "-X",
            "topic.metadata.refresh.fast.interval.ms=20",
            "-t",
            topic,
            "-p",
            str(partition),
            "-z",
            codec,
            "-X",
            f"acks={acks}",
        ]
        how += ["-X", f"enable.idempotence={idempotent}".lower()]
        for same in runs_alike(records):
            # -Z sends what is empty as null, so those with nulls and those with empty strings go in runs of their own.
            null = ["-Z"] if None in same[0][:2] else []
            headers = [word for name, value in same[0].headers for word in ("-H", f"{name}={value.decode()}")]
            if len(same[0].value or b"") > 100_000:
                with tempfile.TemporaryDirectory() as folder:
                    (path := Path(folder, "value")).write_bytes(same[0].value)
                    self.run(*how, "-k", same[0].key.decode(), str(path))
            else:
                lines = [(r.key or b"") + KEY_END + (r.value or b"") for r in same]
                delimiters = ["-K", KEY_END.decode(), "-D", RECORD_END.decode()]
                self.run(*how, *null, *headers, *delimiters, given=RECORD_END.join(lines))

    def consume(self, topic, partition, first_offset, count):
        start = str(first_offset) if first_offset else "beginning"
        how = ["-C", "-q", "-t", topic, "-p", str(partition), "-o", start, "-c", str(count), "-X", "check.crcs=true"]
        # -e ends at the end of the partition, where a record not yet there would be waited for: not for acks=0.
        return parse_records(self.run(*how, "-f", "%o %T %K %S %h\n%k%s"))

    def offsets(self, topic, partition):
        found = [int(self.query(topic, partition, which)) for which in ("-2", "-1")]
        return found[0], found[1]

    def query(self, topic, partition, timestamp):
        answer = self.run("-Q", "-t", f"{topic}:{partition}:{timestamp}").decode()
        return re.findall(r"offset (-?\d+)", answer)[0]

    def describe(self, topic):
        (found,) = json.loads(self.run("-L", "-J", "-t", topic))["topics"]
        return [partition["partition"] for partition in found["partitions"]]


def runs_alike(records: list[Record]) -> list[list[Record]]:
    """Cut records into runs that one call of kcat can send."""
    plain = [r for r in records if r.key and r.value and not r.headers and len(r.value) <= 100_000]
    return [records] if plain == records else [[record] for record in records]


def parse_records(answer: bytes) -> list[Record]:
    found, position = [], 0
    while position < len(answer):
        end = answer.index(b"\n", position)
        offset, timestamp, key_size, value_size, headers = answer[position:end].split(b" ", 4)
        key, position = take(answer, end + 1, int(key_size))
        value, position = take(answer, position, int(value_size))
        pairs = tuple((name.decode(), text) for name, text in re.findall(rb"([^=,]+)=([^,]*)", headers))
        found.append(Record(key, value, pairs, int(timestamp), int(offset)))
    return found


def take(answer: bytes, position: int, size: int) -> tuple[bytes | None, int]:
    return (None, position) if size < 0 else (answer[position : position + size], position + size)

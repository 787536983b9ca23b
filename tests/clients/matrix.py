"""Which foreign clients there are and which steps of the script each can do; `python -m tests.clients.matrix` prints
the tables of docs/clients.md.

A step that is missing here is one that the client has no means for, never one that fails: what a broker gets wrong
shows as a failing test. What the steps do: README.md beside this file.
"""

from __future__ import annotations

import re
from typing import NamedTuple

STEPS = (
    *("create", "codec none", "codec gzip", "codec snappy", "codec lz4", "codec zstd", "describe", "configs"),
    *("partitions", "acks", "nulls", "headers", "null headers", "large", "offsets", "timestamps", "by time"),
    *("idempotent", "foreign", "delete"),
)
# How many records a step reads back and compares at least, so that an empty loop is noticed.
RECORDS_MIN = {step: 100 for step in STEPS if step.startswith("codec ")} | {
    "partitions": 15,
    "acks": 30,
    "nulls": 3,
    "headers": 2,
    "null headers": 1,
    "large": 4,
    "timestamps": 10,
    "by time": 7,
    "idempotent": 100,
    "foreign": 80,
}


class Client(NamedTuple):
    """One client in one version, told to speak as one release where it can be told so."""

    name: str
    version: str
    toolchain: str  # a function of build.py
    steps: tuple[str, ...]
    variant: str = ""  # the release it is told to speak; empty: it finds out
    said_of: str = ""  # a word for the table

    @property
    def id(self) -> str:
        return " ".join(part for part in (self.name, self.version, self.variant and f"as {self.variant}") if part)

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z0-9.]+", "-", self.id)


def without(*left_out: str) -> tuple[str, ...]:
    assert set(left_out) <= set(STEPS)
    return tuple(step for step in STEPS if step not in left_out)


ALL = STEPS
# By what came when: 0.10 timestamps, 0.10.1 lookups by time, 0.11 headers, idempotence and administration, 2.1 zstd.
NO_ADMIN = ("create", "configs", "partitions", "delete")
OF_0_11 = without("codec zstd")
OF_0_10_1 = without("codec zstd", "headers", "null headers", "idempotent", *NO_ADMIN)
OF_0_8 = tuple(step for step in OF_0_10_1 if step not in ("timestamps", "by time"))
KAFKA_PYTHON = without("codec zstd", "null headers", "idempotent")  # 1.x and 2.x: it takes no null header

CLIENTS = (
    Client("kafka-python", "3.0.12", "python", without("null headers")),
    Client("kafka-python", "2.0.2", "python", KAFKA_PYTHON),
    Client("kafka-python", "1.4.7", "python", KAFKA_PYTHON),
    Client("kafka-python", "1.4.7", "python", tuple(s for s in KAFKA_PYTHON if s not in NO_ADMIN), "0.11.0"),
    Client("kafka-python", "1.4.7", "python", (*OF_0_8[:-1], "timestamps", "foreign"), "0.10"),
    Client("kafka-python", "1.4.7", "python", OF_0_8, "0.9"),
    Client("kafka-python", "1.4.7", "python", OF_0_8, "0.8.2"),
    Client("aiokafka", "0.14.0", "python", ALL),
    Client("confluent-kafka", "2.16.1", "python", ALL, said_of="librdkafka"),
    Client("kcat", "1.7", "kcat", without("null headers", "timestamps", "by time", *NO_ADMIN), said_of="librdkafka"),
    Client("java", "4.4.0", "java", ALL),
    Client("java", "3.9.2", "java", ALL),
    Client("java", "2.8.2", "java", ALL),
    Client("java", "1.1.1", "java", OF_0_11),
    Client("java", "0.10.2.2", "java", OF_0_10_1),
    Client("java", "0.9.0.1", "java", OF_0_8),
    Client("java", "0.8.2.2", "java", OF_0_8, said_of="new producer, SimpleConsumer"),
    Client("franz-go", "1.22.2", "go", ALL),
    Client("sarama", "1.61.1", "go", ALL),
    Client("sarama", "1.61.1", "go", ALL, "2.1.0"),
    Client("sarama", "1.61.1", "go", OF_0_10_1, "0.10.2.0"),
    # It has lz4 from 0.10 on only, to write as to read.
    Client("sarama", "1.61.1", "go", tuple(s for s in OF_0_8 if s not in ("codec lz4", "foreign")), "0.8.2.2"),
    Client("kafkajs", "2.2.4", "node", without("null headers")),
)

# Topics that were compacted: other steps of the same script, for the newest clients; the older ones only read.
CLEANED_STEPS = ("gaps", "gaps zstd", "holes", "committed", "end")
CLEANED_RECORDS_MIN = {"gaps": 20, "gaps zstd": 20, "holes": 6, "committed": 54, "end": 20}
READS_ONLY = ("kcat",)  # it can tell of no position


def cleaned_steps(client: Client) -> tuple[str, ...]:
    """Return what a client can do with such topics; what they hold in NAME is compressed with lz4 too."""
    steps = {"gaps", "holes"} if "codec lz4" in client.steps else set()
    if "codec zstd" in client.steps:
        steps |= {"gaps zstd"}
        if client.name not in READS_ONLY:
            steps |= {"committed", "end"}
    return tuple(step for step in CLEANED_STEPS if step in steps)


# Groups: a second script, with steps of its own; the variant "consumer" is the consumer protocol of KIP-848, in which
# the broker assigns: by its own range or uniform.
EAGER, COOPERATIVE = ("range", "roundrobin", "sticky"), ("cooperative",)
GROUP_STEPS = (*EAGER, *COOPERATIVE, "uniform", "static", "resume", "seek", "crash")


def in_groups(*steps: str, but: tuple[str, ...] = ()) -> tuple[str, ...]:
    chosen = {*steps, "resume", "seek", "crash"} - {*but}
    return tuple(step for step in GROUP_STEPS if step in chosen)


OLD_GROUPS = in_groups("range", "roundrobin")
ALL_CLASSIC = in_groups(*EAGER, *COOPERATIVE, "static")
ALL_CONSUMER = in_groups("range", "uniform", "static")

GROUP_CLIENTS = (
    Client("kafka-python", "3.0.12", "python", ALL_CLASSIC),
    Client("kafka-python", "2.0.2", "python", OLD_GROUPS),  # its sticky assignor fails before it asks for anything
    Client("kafka-python", "1.4.7", "python", OLD_GROUPS),
    Client("kafka-python", "1.4.7", "python", OLD_GROUPS, "0.11.0"),
    Client("kafka-python", "1.4.7", "python", OLD_GROUPS, "0.10"),
    Client("kafka-python", "1.4.7", "python", OLD_GROUPS, "0.9"),
    Client("aiokafka", "0.14.0", "python", in_groups(*EAGER, "static")),
    Client("confluent-kafka", "2.16.1", "python", in_groups("range", "roundrobin", *COOPERATIVE, "static")),
    Client("confluent-kafka", "2.16.1", "python", ALL_CONSUMER, "consumer"),
    Client("java", "4.4.0", "java", ALL_CLASSIC),
    Client("java", "4.4.0", "java", ALL_CONSUMER, "consumer"),
    Client("java", "3.9.2", "java", ALL_CLASSIC),
    Client("java", "3.9.2", "java", ALL_CONSUMER, "consumer"),
    Client("java", "2.8.2", "java", ALL_CLASSIC),
    Client("java", "1.1.1", "java", in_groups(*EAGER)),
    Client("java", "0.10.2.2", "java", OLD_GROUPS),
    Client("java", "0.9.0.1", "java", OLD_GROUPS),
    Client("franz-go", "1.22.2", "go", ALL_CLASSIC),
    # When one with an instance id goes, it leaves the id out of its last heartbeat, and Kafka refuses that.
    Client("franz-go", "1.22.2", "go", in_groups("range", "uniform"), "consumer"),
    Client("sarama", "1.61.1", "go", ALL_CLASSIC),
    Client("sarama", "1.61.1", "go", OLD_GROUPS, "0.10.2.0"),
    Client("kafkajs", "2.2.4", "node", in_groups("roundrobin")),
)

# kafka-consumer-groups of Kafka itself; 4.4.0 has no jar of it where the others have theirs.
TOOL_STEPS = ("list", "offsets", "members", "state", "refused", "empty", "reset", "delete offsets", "delete")
GROUP_TOOLS = tuple(
    Client("kafka-consumer-groups", version, "tool", TOOL_STEPS, variant)
    for version in ("4.3.1", "3.9.2")
    for variant in ("", "consumer")
)

# Transactions: a third script; test_transactions.py has what the steps do.
TRANSACTION_STEPS = ("ended", "offsets", "fenced", "late", "copied", "killed")
TRANSACTION_CLIENTS = (
    # It forgets a TxnOffsetCommit for which nobody listens at the port of the coordinator, and waits for ever.
    Client("kafka-python", "3.0.12", "python", TRANSACTION_STEPS[:-1]),
    # It does not look at the error of a whole OffsetFetchResponse: a coordinator that loads has no offsets for it.
    Client("aiokafka", "0.14.0", "python", TRANSACTION_STEPS[:-1]),
    # It waits for a coordinator of the group that it has taken out of service (issues 5456 and 5511 of librdkafka).
    Client("confluent-kafka", "2.16.1", "python", TRANSACTION_STEPS[:-1]),
    Client("java", "4.4.0", "java", TRANSACTION_STEPS),
    Client("java", "3.9.2", "java", TRANSACTION_STEPS),
    Client("java", "2.8.2", "java", TRANSACTION_STEPS),
    Client("java", "0.11.0.3", "java", TRANSACTION_STEPS),
    # It commits offsets of the session that has read the records, and no others.
    Client("franz-go", "1.22.2", "go", tuple(step for step in TRANSACTION_STEPS if step != "offsets")),
    Client("kafkajs", "2.2.4", "node", TRANSACTION_STEPS),
)

COLUMNS = {
    "zstd": ("codec zstd",),
    "lz4": ("codec lz4",),
    "gzip, snappy": ("codec gzip", "codec snappy"),
    "null key, value; 900 KiB; acks 0, 1, all": ("nulls", "large", "acks"),
    "headers": ("headers",),
    "null header": ("null headers",),
    "timestamps": ("timestamps",),
    "by time": ("by time",),
    "idempotent": ("idempotent",),
    "topics": ("create", "describe", "configs", "delete"),
}


def table() -> str:
    """Return the table of docs/clients.md."""
    return _table(CLIENTS, {name: set(steps) for name, steps in COLUMNS.items()})


def group_table() -> str:
    """Return the table of docs/clients.md about groups."""
    return _table(GROUP_CLIENTS, {step: {step} for step in GROUP_STEPS})


def transaction_table() -> str:
    """Return the table of docs/clients.md about transactions."""
    return _table(TRANSACTION_CLIENTS, {step: {step} for step in TRANSACTION_STEPS})


def _table(clients: tuple[Client, ...], columns: dict[str, set[str]]) -> str:
    lines = ["| client | version | " + " | ".join(columns) + " |", "|---" * (len(columns) + 2) + "|"]
    for client in clients:
        name = f"{client.name} ({client.said_of})" if client.said_of else client.name
        version = client.version
        if client.variant == "consumer":
            version += ", consumer protocol"
        elif client.variant:
            version += f" as {client.variant}"
        cells = ["yes" if steps <= set(client.steps) else "-" for steps in columns.values()]
        lines.append(f"| {name} | {version} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), group_table(), transaction_table(), sep="\n", end="")

"""Asks a real Kafka to set and describe quotas: `python -m tests.interop.golden_quotas 4.4.0 > client-quotas.jsonl`.

Questions as they went over the wire, one a line, and the answers. Needs Java 17 and Maven. tests/quotas/test_golden.py
asks the same of ours.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from minibroker.protocol.headers import Request
from minibroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from minibroker.protocol.messages.create_partitions import CreatePartitionsRequest
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from minibroker.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from tests.differential.kafka import Kafka
from tests.differential.play import CLIENT_ID, _frame
from tests.differential.wire import ANSWER, Side
from tests.server.running import batch, fetch, produce

Entity = list[tuple[str, str | None]]
Change = tuple[str, float | None]  # None takes it back
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
USER, CLIENT, IP = "user", "client-id", "ip"
PRODUCED, FETCHED, TIME = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATIONS, CONNECTIONS = "controller_mutation_rate", "connection_creation_rate"
THROTTLED = "throttled:"
RECORDS = batch(b"a value", b"another value", key=b"a key")
SETTLE_SECONDS = 1.0  # until brokers and controllers have read of a new limit
GOOD: list[tuple[Entity, list[Change]]] = [
    ([(USER, "u")], [(PRODUCED, 1000), (FETCHED, 2000), (TIME, 12.5), (MUTATIONS, 0.5)]),
    ([(USER, None)], [(PRODUCED, 1)]),
    ([(USER, "u"), (CLIENT, "c")], [(PRODUCED, 2)]),
    ([(CLIENT, None), (USER, "u")], [(PRODUCED, 3)]),
    ([(CLIENT, "c"), (USER, None)], [(PRODUCED, 4)]),
    ([(CLIENT, None), (USER, None)], [(PRODUCED, 5)]),
    ([(CLIENT, "c")], [(FETCHED, 6.0000001)]),
    ([(CLIENT, None)], [(FETCHED, 7)]),
    ([(IP, "127.0.0.1")], [(CONNECTIONS, 800)]),
    ([(IP, None)], [(CONNECTIONS, 900)]),
    ([(USER, "a user:*/ü")], [(PRODUCED, 10)]),
    ([(USER, "u")], [(PRODUCED, 1000)]),  # again
    ([(USER, "u")], [(FETCHED, None), (TIME, 99)]),
    ([(USER, "u")], [("no_such_key", None)]),
    ([(USER, "nobody")], [(FETCHED, None)]),
    ([(USER, "nothing")], []),
]
BAD: list[tuple[Entity, list[Change]]] = [
    ([], [(PRODUCED, 1)]),
    ([("group", "g")], [(PRODUCED, 1)]),
    ([(USER, "")], [(PRODUCED, 1)]),
    ([(USER, "u"), (USER, "v")], [(PRODUCED, 1)]),
    ([(IP, "127.0.0.1"), (USER, "u")], [(CONNECTIONS, 1)]),
    ([(IP, "no.such.host.invalid")], [(CONNECTIONS, 1)]),
    ([(IP, "127.0.0.1")], [(PRODUCED, 1)]),
    ([(IP, "127.0.0.1")], [(CONNECTIONS, 1.5)]),
    ([(IP, "127.0.0.1")], [(CONNECTIONS, 1e10)]),
    ([(USER, "u")], [(CONNECTIONS, 1)]),
    ([(USER, "u")], [("no_such_key", 1)]),
    ([(USER, "u")], [(PRODUCED, 0)]),
    ([(USER, "u")], [(TIME, -1)]),
    ([(USER, "u")], [(PRODUCED, 1.5)]),
    ([(USER, "u")], [(PRODUCED, 1e19)]),
    ([(USER, "w")], [(PRODUCED, 1), (FETCHED, 0)]),  # all of it or nothing
    ([(USER, "w")], [(PRODUCED, 1), (PRODUCED, 2)]),
]
TWICE: list[tuple[Entity, list[Change]]] = [
    ([(USER, "twice"), (CLIENT, None)], [(PRODUCED, 1)]),
    ([(CLIENT, None), (USER, "twice")], [(PRODUCED, 2)]),
    ([(USER, "other")], [(PRODUCED, 2)]),
]
FILTERS: dict[str, list[tuple[str, int, str | None]]] = {
    "all": [],
    "a user": [(USER, EXACT, "u")],
    "the default user": [(USER, DEFAULT, None)],
    "any user": [(USER, SPECIFIED, None)],
    "any client of any user": [(USER, SPECIFIED, None), (CLIENT, SPECIFIED, None)],
    "any client of a user": [(CLIENT, SPECIFIED, None), (USER, EXACT, "u")],
    "a client": [(CLIENT, EXACT, "c")],
    "the default client": [(CLIENT, DEFAULT, None)],
    "an address": [(IP, EXACT, "127.0.0.1")],
    "any address": [(IP, SPECIFIED, None)],
    "nobody": [(USER, EXACT, "nobody")],
    "no type": [("", SPECIFIED, None)],
    "an unknown type": [("group", SPECIFIED, None)],
    "twice": [(USER, SPECIFIED, None), (USER, EXACT, "u")],
    "an address and a user": [(IP, SPECIFIED, None), (USER, SPECIFIED, None)],
    "exactly nobody": [(USER, EXACT, None)],
    "a default by name": [(USER, DEFAULT, "u")],
    "an unknown way": [(USER, 7, None)],
}


def altering(wishes: list[tuple[Entity, list[Change]]], *, validate_only: bool = False) -> AlterClientQuotasRequest:
    Entry = AlterClientQuotasRequest.EntryData
    entries = [
        Entry(
            entity=[Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[Entry.OpData(key=key, value=value or 0, remove=value is None) for key, value in changes],
        )
        for entity, changes in wishes
    ]
    return AlterClientQuotasRequest(entries=entries, validate_only=validate_only)


def described(rows: list[tuple[str, int, str | None]], *, strict: bool) -> DescribeClientQuotasRequest:
    Component = DescribeClientQuotasRequest.ComponentData
    components = [Component(entity_type=kind, match_type=way, match=match) for kind, way, match in rows]
    return DescribeClientQuotasRequest(components=components, strict=strict)


def created(names: list[str], partitions: int) -> CreateTopicsRequest:
    Topic = CreateTopicsRequest.CreatableTopic
    topics = [
        Topic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=10_000)


def questions() -> Iterator[tuple[str, Request, int]]:
    """Yield all questions, in their order: each with a name and a version."""
    yield "a topic for records", created(["records"], 1), 7
    for version in (0, 1):
        for number, (entity, changes) in enumerate(BAD):
            yield f"bad {number}", altering([(entity, changes)]), version
        yield "all that is bad", altering(BAD[:10]), version
        yield "nothing was done", described([], strict=False), version
    yield "only tried", altering(GOOD[:3], validate_only=True), 1
    yield "tried in vain", altering(BAD[11:12], validate_only=True), 1
    yield "nothing was done", described([], strict=False), 1
    for number, (entity, changes) in enumerate(GOOD):
        yield f"good {number}", altering([(entity, changes)]), number % 2
    yield "one twice", altering(TWICE), 1
    for version in (0, 1):
        for name, rows in FILTERS.items():
            for strict in (False, True):
                yield f"{name}, {strict=}", described(rows, strict=strict), version
    # By limits of 5 and of 7 bytes a second a byte more or less is a throttle time of more than 100 ms.
    for version in range(3, 13):
        yield f"{THROTTLED} records come, {version}", produce("records", RECORDS), version
    for version in range(4, 13):
        yield f"{THROTTLED} records go, {version}", fetch("records", version - 4, bytes_max=1), version
    yield "changes of topics", altering([([(CLIENT, CLIENT_ID)], [(MUTATIONS, 0.1)])]), 1
    yield "topics up to a debt", created(["a", "b", "c"], 6), 6
    gone = DeleteTopicsRequest(topic_names=["a"], timeout_ms=10_000)
    yield "a topic goes too soon", gone, 5
    More = CreatePartitionsRequest.CreatePartitionsTopic
    more = CreatePartitionsRequest(
        topics=[More(name="a", count=40, assignments=None)], timeout_ms=10_000, validate_only=False
    )
    yield "more partitions too soon", more, 3
    yield "only tried too soon", created(["d"], 1), 7
    yield "more partitions, by an old client", more, 2
    yield "a topic goes, for an old client", gone, 4
    yield "topics of an old client", created(["e"], 1), 5


def main(version: str) -> None:
    with tempfile.TemporaryDirectory() as directory, Kafka(version, Path(directory)) as kafka:
        for name, request, api_version in questions():
            # A client of its own each: nothing was measured of it before.
            client_id = name if name.startswith(THROTTLED) else CLIENT_ID
            frame, side = _frame(request, api_version, client_id), Side(kafka.address)
            side.send(frame)  # on a connection of its own: one that is throttled is muted
            outcome = side.receive()
            side.close()
            assert outcome.kind == ANSWER, name
            row = {"name": name, "api": request.api, "version": api_version}
            print(json.dumps({**row, "request": frame.hex(), "response": outcome.frame.hex()}))
            if isinstance(request, AlterClientQuotasRequest):
                time.sleep(SETTLE_SECONDS if name == "changes of topics" else 0.1)


if __name__ == "__main__":
    main(sys.argv[1])

"""How fast messages become bytes and bytes messages, next to kafka-python, aiokafka and kio, all in one run.

Before anything is timed, every library must read our bytes to the same field values and write them back to the same
bytes. Each is measured through its public calls, the body without a header. aiokafka has no flexible versions: its
newest one stands in, marked with *, and is compared with ours in that same version. kio reads in native code, so its
decoder is shown but does not count as pure Python; its encoder does.

Rounds go through all cases in turn, so that a busy moment of the machine hits all of them. A figure is the median over
the rounds; a ratio is the median of the ratios within each round, which noise moves least. CPU time, garbage collector
on, as in a broker. It prints and never fails: the aims are a decoder at least as fast as the fastest pure-Python one
and an encoder at least 4 times as fast.

    python bench/codec/messages.py [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import gc
import importlib
import io
import json
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version as installed
from typing import Any

from minibroker.protocol import message
from minibroker.schema.plan import Plan, message_plan

ROUNDS = 9
SLICE_MS = 15  # how long one case runs in one round
ENCODE_RATIO_MIN = 4
OURS, KAFKA_PYTHON, AIOKAFKA, KIO = "minibroker", "kafka-python", "aiokafka", "kio"


def produce() -> Any:
    request: Any = message("ProduceRequest")
    topic = request.TopicProduceData
    partition = topic.PartitionProduceData(index=0, records=b"x" * 100)
    return request(acks=1, timeout_ms=30_000, topic_data=[topic(name="topic", partition_data=[partition])])


def fetch_request() -> Any:
    request: Any = message("FetchRequest")
    topic = request.FetchTopic
    partitions = [
        topic.FetchPartition(partition=index, fetch_offset=index * 10, partition_max_bytes=1 << 20)
        for index in range(100)
    ]
    return request(max_wait_ms=500, min_bytes=1, topics=[topic(topic="topic", partitions=partitions)])


def fetch_response() -> Any:
    response: Any = message("FetchResponse")
    topic = response.FetchableTopicResponse
    partitions = [
        topic.PartitionData(
            partition_index=index,
            error_code=0,
            high_watermark=1000 + index,
            aborted_transactions=[],  # what a broker sends; aiokafka cannot read null
            records=b"x" * 100,
        )
        for index in range(100)
    ]
    return response(responses=[topic(topic="topic", partitions=partitions)])


def metadata(topic_count: int) -> Any:
    response: Any = message("MetadataResponse")
    topic = response.MetadataResponseTopic
    nodes = [1, 2, 3]
    return response(
        brokers=[
            response.MetadataResponseBroker(node_id=node, host=f"broker-{node}.example", port=9092) for node in nodes
        ],
        cluster_id="vPeOCWypqUOSepEvx0cbog",
        controller_id=1,
        topics=[
            topic(
                error_code=0,
                name=f"topic-{number}",
                partitions=[
                    topic.MetadataResponsePartition(
                        error_code=0,
                        partition_index=index,
                        leader_id=nodes[index],
                        replica_nodes=nodes,
                        isr_nodes=nodes,
                    )
                    for index in range(3)
                ],
            )
            for number in range(topic_count)
        ],
    )


def offset_commit() -> Any:
    request: Any = message("OffsetCommitRequest")
    topic = request.OffsetCommitRequestTopic
    partitions = [
        topic.OffsetCommitRequestPartition(partition_index=index, committed_offset=index * 10, committed_metadata="")
        for index in range(100)
    ]
    return request(group_id="group", topics=[topic(name="topic", partitions=partitions)])


# Row -> the message, our version, aiokafka's nearest.
ROWS: dict[str, tuple[Callable[[], Any], int, int]] = {
    "ProduceRequest v9, 1 x 1": (produce, 9, 8),
    "FetchRequest v12, 100 partitions": (fetch_request, 12, 11),
    "FetchResponse v12, 100 partitions": (fetch_response, 12, 11),
    "MetadataResponse v9, 10 topics x 3": (lambda: metadata(10), 9, 5),
    "MetadataResponse v9, 1,000 topics x 3": (lambda: metadata(1000), 9, 5),
    "OffsetCommitRequest v8, 100 partitions": (offset_commit, 8, 3),
}
KAFKA_PYTHON_MODULES = {
    "ProduceRequest": "producer",
    "FetchRequest": "consumer",
    "FetchResponse": "consumer",
    "MetadataResponse": "metadata",
    "OffsetCommitRequest": "consumer",
}
AIOKAFKA_MODULES = {"OffsetCommitRequest": "commit"}


@dataclasses.dataclass
class Codec:
    """One library's way to and from bytes, for one message in one version."""

    library: str
    version: int
    decode: Callable[[], Any]
    encode: Callable[[], Any]
    values: Callable[[Any], Any]  # a decoded message as nested lists of field values in wire order

    def check(self, data: bytes, values: Any) -> None:
        """Say whether it reads what we read and writes what we write."""
        assert self.values(self.decode()) == values, f"{self.library} reads other values"
        assert bytes(self.encode()) == data, f"{self.library} writes other bytes"


def ours(sample: Any, version: int) -> Codec:
    cls, data, plan = type(sample), sample.encode(version), message_plan(type(sample), version)
    return Codec(
        OURS, version, lambda: cls.decode(data, version), lambda: sample.encode(version), lambda m: our_values(m, plan)
    )


def our_values(value: Any, plan: Plan) -> list[Any]:
    found = []
    for field in plan.fields:
        item, element = getattr(value, field.name), field.type.element
        if element and element.plan and item is not None:
            item = [our_values(each, element.plan) for each in item]
        found.append(plain(item))
    return found


def kafka_python(name: str, version: int, data: bytes) -> Codec:
    cls = getattr(importlib.import_module(f"kafka.protocol.{KAFKA_PYTHON_MODULES[name]}"), name)
    # A decoded object lacks tagged fields and looks them up slowly when encoding: a constructed one has them all.
    sample = constructed(cls.decode(data, version=version))
    return Codec(
        KAFKA_PYTHON, version, lambda: cls.decode(data, version=version), lambda: sample.encode(), kafka_python_values
    )


def kafka_python_values(value: Any) -> Any:
    if isinstance(value, list):
        return [kafka_python_values(item) for item in value]
    if not hasattr(value, "_struct"):
        return plain(value)
    found = []
    for field in value._struct.untagged_fields(value.version):
        item = getattr(value, field.name)
        if field.name == "authorized_operations" and item is None:  # a set of bit numbers, None if not asked
            item = -(1 << 31)
        found.append(kafka_python_values(item))
    return found


def constructed(value: Any) -> Any:
    if isinstance(value, list):
        return [constructed(item) for item in value]
    if not hasattr(value, "_struct"):
        return value
    fields = value._struct.untagged_fields(value.version)
    return type(value)(version=value.version, **{f.name: constructed(getattr(value, f.name)) for f in fields})


def aiokafka(name: str, version: int, data: bytes) -> Codec:
    module = AIOKAFKA_MODULES.get(name) or re.sub("Request|Response", "", name).lower()
    cls = getattr(importlib.import_module(f"aiokafka.protocol.{module}"), f"{name}_v{version}")
    sample = cls.decode(data)
    return Codec(AIOKAFKA, version, lambda: cls.decode(data), lambda: sample.encode(), plain)


def kio(name: str, version: int, data: bytes) -> Codec:
    from kio.serial import entity_reader, entity_writer

    kind = "request" if name.endswith("Request") else "response"
    api = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removesuffix(kind.title())).lower()
    cls = getattr(importlib.import_module(f"kio.schema.{api}.v{version}.{kind}"), name)
    read, write = entity_reader(cls), entity_writer(cls)
    sample, _ = read(data, 0)

    def encode() -> bytes:
        buffer = io.BytesIO()
        write(buffer, sample)
        return buffer.getvalue()

    return Codec(KIO, version, lambda: read(data, 0)[0], encode, plain)


def plain(value: Any) -> Any:
    """Return any library's value as lists, numbers, strings and bytes, tagged fields left out."""
    if value is None or isinstance(value, (bool, str, bytes)):
        return value
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, int):
        return int(value)
    if dataclasses.is_dataclass(value):  # kio
        value = [getattr(value, field.name) for field in dataclasses.fields(value) if "tag" not in field.metadata]
    elif hasattr(value, "SCHEMA"):  # aiokafka
        value = [value.get_item(name) for name in value.SCHEMA.names]
    return [plain(item) for item in value]


def checked_codecs(row: str) -> Iterator[Codec]:
    """Yield every library's codec for a row, ours first, each shown to agree with ours."""
    make, version, version_aiokafka = ROWS[row]
    sample = make()
    name = type(sample).__name__
    for at, others in ((version, (kafka_python, kio)), (version_aiokafka, (aiokafka,))):
        mine, data = ours(sample, at), sample.encode(at)
        values = mine.values(mine.decode())
        assert values == mine.values(sample), "our decoder reads other values"
        for codec in (mine, *(other(name, at, data) for other in others)):
            codec.check(data, values)
            yield codec


Case = tuple[str, str, int, str]  # row, library, version, "decode" or "encode"


def measure(rounds: int) -> dict[Case, list[float]]:
    """Return the µs of each case, one figure a round."""
    calls: dict[Case, Callable[[], Any]] = {}
    for row in ROWS:
        for codec in checked_codecs(row):
            calls[row, codec.library, codec.version, "decode"] = codec.decode
            calls[row, codec.library, codec.version, "encode"] = codec.encode
    gc.collect()
    gc.freeze()  # what the libraries made when imported is not walked again in the middle of a case
    counts = {case: max(1, int(SLICE_MS * 1e3 / min(once(call, 1) for _ in range(5)))) for case, call in calls.items()}
    found: dict[Case, list[float]] = {case: [] for case in calls}
    for _ in range(rounds):
        for case, call in calls.items():
            found[case].append(once(call, counts[case]))
    return found


def once(call: Callable[[], Any], count: int) -> float:
    start = time.process_time_ns()
    for _ in range(count):
        call()
    return (time.process_time_ns() - start) / count / 1e3 or 0.1


def summary(found: dict[Case, list[float]]) -> list[dict[str, Any]]:
    """Return a line per row and library; aiokafka's figures go with ours of the same version."""
    lines = []
    for row, (_, version, _) in ROWS.items():
        for library, at in dict.fromkeys(case[1:3] for case in found if case[0] == row):
            line: dict[str, Any] = {"row": row, "library": library, "version": at, "same_version": at == version}
            for way in ("decode", "encode"):
                took, base = found[row, library, at, way], found[row, OURS, at, way]
                line[f"{way}_us"] = round(statistics.median(took), 2)
                line[f"{way}_ratio"] = round(statistics.median(a / b for a, b in zip(took, base)), 2)
            lines.append(line)
    return lines


def verdicts(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each row the ratio of the fastest pure-Python code to ours, and whether that is enough."""
    result = []
    for row in ROWS:
        others = [line for line in lines if line["row"] == row and line["library"] != OURS]
        decode = min(line["decode_ratio"] for line in others if line["library"] != KIO)
        encode = min(line["encode_ratio"] for line in others)
        result.append(
            {
                "row": row,
                "decode_ratio": decode,
                "decode_met": decode >= 1,
                "encode_ratio": encode,
                "encode_met": encode >= ENCODE_RATIO_MIN,
            }
        )
    return result


def show(lines: list[dict[str, Any]], rounds: int) -> None:
    names = [f"{name} {installed(name)}" for name in (KAFKA_PYTHON, AIOKAFKA, KIO)]
    print(f"Python {platform.python_version()}, {', '.join(names)}; medians of {rounds} interleaved rounds, CPU time")
    print(f"{'':<40} {'library':<18} {'decode µs':>10} {'/ ours':>7} {'encode µs':>10} {'/ ours':>7}")
    last = ""
    for line in lines:
        row = line["row"] if line["row"] != last else ""
        library = line["library"] + ("" if line["same_version"] else f" v{line['version']} *")
        native = "n" if line["library"] == KIO else " "
        print(
            f"{row:<40} {library:<18} {line['decode_us']:>10,.2f} {line['decode_ratio']:>6.2f}{native}"
            f" {line['encode_us']:>10,.2f} {line['encode_ratio']:>7.2f}"
        )
        last = line["row"]
    print("n: native code, does not count. *: the nearest version that aiokafka has, compared with ours in that one.\n")
    print(f"{'fastest pure Python / ours':<40} {'decode (aim 1)':>18} {f'encode (aim {ENCODE_RATIO_MIN})':>18}")
    for verdict in verdicts(lines):
        decode = f"{verdict['decode_ratio']:.2f} {'met' if verdict['decode_met'] else 'MISSED'}"
        encode = f"{verdict['encode_ratio']:.2f} {'met' if verdict['encode_met'] else 'MISSED'}"
        print(f"{verdict['row']:<40} {decode:>18} {encode:>18}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Message codecs, ours and others', in one run.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"at least 7 (default {ROUNDS})")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    rounds = max(7, options.rounds)
    lines = summary(measure(rounds))
    if options.json:
        libraries = {name: installed(name) for name in (KAFKA_PYTHON, AIOKAFKA, KIO)}
        report = {
            "python": platform.python_version(),
            "rounds": rounds,
            "libraries": libraries,
            "cases": lines,
            "verdicts": verdicts(lines),
        }
        json.dump(report, sys.stdout, indent=1)
        print()
    else:
        show(lines, rounds)


if __name__ == "__main__":
    main()

"""A command line on kafka-python: write lines to a topic, read records from any time on, and see how far a group is.

    topictool.py send orders < orders.txt     each line a record; KEY<tab>VALUE where there is a tab
    topictool.py read orders --since 1h       what is there, of the last hour
    topictool.py lag billing orders           how far the group is behind, by partition

The broker is that of --bootstrap-server, or of KAFKA_BOOTSTRAP_SERVERS.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def span_ms(text: str) -> int:
    """Return the milliseconds of a span such as 90s or 2h."""
    if text[-1:] not in UNITS_MS or not text[:-1].isdigit():
        raise argparse.ArgumentTypeError(f"{text}: a number and one of {', '.join(UNITS_MS)}")
    return int(text[:-1]) * UNITS_MS[text[-1]]


def send(given: argparse.Namespace) -> Iterator[str]:
    producer = KafkaProducer(bootstrap_servers=given.bootstrap_server, acks="all")
    written = []
    for line in sys.stdin:
        key, tab, value = line.rstrip("\n").partition("\t")
        written.append(producer.send(given.topic, (value if tab else key).encode(), key=key.encode() if tab else None))
    for future in written:
        future.get(timeout=30)
    producer.close()
    yield f"{len(written)} records"


def read(given: argparse.Namespace) -> Iterator[str]:
    consumer = KafkaConsumer(bootstrap_servers=given.bootstrap_server, enable_auto_commit=False)
    partitions = partitions_of(consumer, given.topic)
    consumer.assign(partitions)
    ends = consumer.end_offsets(partitions)
    consumer.seek_to_beginning(*partitions)
    if given.since is not None:
        since = int(time.time() * 1000) - given.since
        for partition, found in consumer.offsets_for_times(dict.fromkeys(partitions, since)).items():
            consumer.seek(partition, found.offset if found else ends[partition])
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        for records in consumer.poll(timeout_ms=100).values():
            for record in records:
                if record.offset < ends[TopicPartition(record.topic, record.partition)]:
                    key = "" if record.key is None else record.key.decode()
                    yield f"{record.partition}\t{record.offset}\t{key}\t{(record.value or b'').decode()}"
    consumer.close()


def lag(given: argparse.Namespace) -> Iterator[str]:
    consumer = KafkaConsumer(bootstrap_servers=given.bootstrap_server, group_id=given.group, enable_auto_commit=False)
    partitions = partitions_of(consumer, given.topic)
    for partition, end in sorted(consumer.end_offsets(partitions).items()):
        committed = consumer.committed(partition)
        yield f"{partition.partition}\t{'nothing committed' if committed is None else end - committed}"
    consumer.close()


def partitions_of(consumer: KafkaConsumer, topic: str) -> list[TopicPartition]:
    numbers = consumer.partitions_for_topic(topic)
    if not numbers:
        raise SystemExit(f"there is no topic {topic}")
    return [TopicPartition(topic, number) for number in sorted(numbers)]


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="topictool", description="Topics and groups at the terminal.")
    parser.add_argument("--bootstrap-server", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command, names in ((send, ["topic"]), (read, ["topic"]), (lag, ["group", "topic"])):
        sub = commands.add_parser(command.__name__)
        sub.set_defaults(command=command)
        for name in names:
            sub.add_argument(name)
        if command is read:
            sub.add_argument("--since", type=span_ms, metavar="SPAN", help="only of this long ago and later, as 1h")
    given = parser.parse_args(words)
    try:
        for line in given.command(given):
            print(line)
    except KafkaError as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from error


if __name__ == "__main__":
    main()

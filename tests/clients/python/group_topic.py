"""Makes the topic that all steps about groups read: `python group_topic.py BOOTSTRAP TOPIC`, with kafka-python."""

from __future__ import annotations

import sys

from group_script import PARTITIONS, RECORDS_EACH
from kafka_python_client import Client
from script import Record


def main(bootstrap: str, topic: str) -> None:
    client = Client(bootstrap, "")
    client.create(topic, PARTITIONS, {})
    for partition in range(PARTITIONS):
        records = [Record(None, f"{partition}-{offset}".encode()) for offset in range(RECORDS_EACH)]
        assert client.produce(topic, partition, records) == [*range(RECORDS_EACH)]
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

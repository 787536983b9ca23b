"""One's own records, for commands that try something with them: of a file of lines, of log segments, or of a topic.

What must hold: no more than so many bytes are read; whether there was more is known.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from minibroker.cli.status import DONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from minibroker.client.cluster import Cluster
    from minibroker.log.records import Record

WAIT_MS = 10
UNITS = {"": 1, "K": 1000, "M": 10**6, "G": 10**9, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30}


class OwnRecords(NamedTuple):
    """Records, and whether there were more of them."""

    records: list[Record]
    is_all: bool


def size_of(text: str) -> int:
    """Return the bytes that a size is, such as 16384, 16KiB or 4MB; ValueError if it is none."""
    letters = text.upper().rstrip("B").lstrip("0123456789")
    if letters not in UNITS:
        raise ValueError(f"{text!r} is no size; say 16384, 16KiB or 4MB")
    return int(text[: len(text.upper().rstrip("B")) - len(letters)]) * UNITS[letters]


def read_records(command: str, name: str, options: argparse.Namespace, bytes_max: int) -> OwnRecords | int:
    """Return the records of a file, a directory with segments, or a topic; a status where there are none to be had.

    Raises OSError and ProtocolError of files; what is wrong with a broker has been said.
    """
    if os.path.exists(name) or os.sep in name:
        return _limited(_in_files(name), bytes_max)
    from minibroker.cli.connect import run_with_cluster

    found: list[OwnRecords] = []

    async def work(cluster: Cluster) -> int:
        found.append(await _in_topic(cluster, name, bytes_max))
        return DONE

    status = run_with_cluster(command, options, work)
    return found[0] if found else status


def _limited(records: Iterable[Record], bytes_max: int) -> OwnRecords:
    from minibroker.tools.format_sizes import data_bytes_of

    taken: list[Record] = []
    left = bytes_max
    for record in records:
        left -= data_bytes_of(record)
        if left < 0 and taken:
            return OwnRecords(taken, is_all=False)
        taken.append(record)
    return OwnRecords(taken, is_all=True)


def _in_files(path: str) -> Iterator[Record]:
    if os.path.isdir(path):
        for name in sorted(os.listdir(path)):
            if name.endswith(".log"):
                yield from _in_segment(os.path.join(path, name))
    elif path.endswith(".log") and _is_segment(path):
        yield from _in_segment(path)
    else:
        from minibroker.log.records import Record

        with open(path, "rb") as file:
            for line in file:
                yield Record(None, line.rstrip(b"\r\n"), (), 0)


def _is_segment(path: str) -> bool:
    """Whether a file holds batches: many a .log is text."""
    from minibroker.errors import ProtocolError
    from minibroker.tools.explain import guess

    with open(path, "rb") as file:
        try:
            return os.path.getsize(path) > 0 and guess(file.read(1 << 20)) == "batch"
        except ProtocolError:
            return False


def _in_segment(path: str) -> Iterator[Record]:
    from minibroker.log.batches import batches

    with open(path, "rb") as file:
        data = file.read()
    for batch in batches(data):
        if not batch.is_control:
            yield from batch.records()


async def _in_topic(cluster: Cluster, name: str, bytes_max: int) -> OwnRecords:
    from minibroker.cli.connect import Refused
    from minibroker.cli.status import FAILED
    from minibroker.client.consumer import Consumer
    from minibroker.errors import error_name
    from minibroker.log.records import Record
    from minibroker.tools.format_sizes import data_bytes_of

    topic = (await cluster.metadata([name]))[name]
    if topic.error:
        raise Refused(f"{name} is neither a file nor a topic ({error_name(topic.error)})", FAILED)
    consumer = Consumer(cluster, isolation_level="read_committed", out_of_range="earliest")
    taken: list[Record] = []
    left = bytes_max
    async with consumer:
        await consumer.assign([(name, number, "earliest") for number in topic.partitions])
        while True:
            for each in await consumer.fetch(WAIT_MS):
                record = Record(each.key, each.value, each.headers, each.timestamp)
                left -= data_bytes_of(record)
                if left < 0 and taken:
                    return OwnRecords(taken, is_all=False)
                taken.append(record)
            if consumer.is_at_end:
                return OwnRecords(taken, is_all=True)

"""`minibroker produce`, also `minibroker -P`: lines of stdin or files become records, with the options of kcat and
kafka-console-producer.

Reading goes on while records are under way, as far as the producer has room. What must hold: the exit status is 0 only
if every record has been acknowledged (acks 0: sent).
"""

from __future__ import annotations

import os
import sys
from collections import deque

from minibroker.cli.connect import Refused, complain, run_with_cluster
from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.input import READER_PROPERTIES, lines, parser_of
from minibroker.cli.progress import Progress
from minibroker.cli.record_format import unescaped
from minibroker.cli.status import DONE, FAILED, USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    import asyncio
    from collections.abc import AsyncIterator

    from minibroker.cli.input import Draft
    from minibroker.client.accumulator import RecordMetadata
    from minibroker.client.cluster import Cluster
    from minibroker.client.producer import Producer

    Pending = deque[asyncio.Future[RecordMetadata]]

DESCRIPTION = "Write a record for each line of standard input, or one for each file."
EPILOG = "Without -K a line is the value; with -K ':' the line 'k:v' is key k and value v."
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PROPERTIES = (
    "acks", "request.required.acks", "batch.size", "compression.codec", "compression.type", "enable.idempotence",
    "linger.ms", "queue.buffering.max.ms",
)  # fmt: skip
BATCH_BYTES = 64 * 1024
UNDER_WAY_MAX = 20_000  # futures to remember; those that are done are dropped on the way


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("files", nargs="*", metavar="FILE", help="each is the value of one record")
    parser.add_argument("-t", "--topic", required=True)
    parser.add_argument("-p", "--partition", type=int, default=-1, metavar="N", help="by key, if nothing is said")
    parser.add_argument("-k", "--key", metavar="TEXT", help="the key of every record")
    parser.add_argument("-K", "--key-delimiter", metavar="TEXT", help="what stands between key and value in a line")
    parser.add_argument("-D", "--delimiter", default="\\n", metavar="TEXT", help="what ends a record (\\n)")
    parser.add_argument(
        "-H", "--header", dest="headers", action="append", default=[], metavar="NAME=VALUE",
        help="of every record; NAME alone is null",
    )  # fmt: skip
    parser.add_argument("-z", dest="codec", choices=CODECS, metavar="CODEC", help=", ".join(CODECS))
    parser.add_argument(
        "--compression-codec", dest="codec", nargs="?", const="gzip", choices=CODECS, metavar="CODEC", help="as -z"
    )
    parser.add_argument("-Z", "--null", action="store_true", help="what is empty is null")
    parser.add_argument("-l", "--lines", action="store_true", help="a record for each line of the files too")
    parser.add_argument("-c", "--count", type=int, metavar="N", help="end after so many")
    parser.add_argument("-J", "--json", action="store_true", help="lines as consume -J writes them")
    parser.add_argument(
        "-a", "--acks", "--request-required-acks", dest="acks", choices=("all", "-1", "0", "1"),
        help="who must have the record: all in-sync replicas (if nothing is said), nobody, the leader",
    )  # fmt: skip
    parser.add_argument("--idempotent", action="store_true", help="no record twice, also when an answer was lost")
    parser.add_argument(
        "--property", "--reader-property", dest="console", action="append", default=[], metavar="KEY=VALUE",
        help="as of kafka-console-producer: " + ", ".join(READER_PROPERTIES),
    )  # fmt: skip
    parser.add_argument("--producer-property", dest="properties", action="append", metavar="KEY=VALUE", help="as -X")
    parser.add_argument("--sync", action="store_true", help="one record after the other")
    parser.add_argument("-v", "--verbose", action="store_true", help="say where each record went")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on standard error")


def run(options: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        return await _produce(cluster, options)

    try:
        return run_with_cluster("produce", options, work, PROPERTIES)
    except BrokenPipeError:
        raise
    except OSError as failure:  # of files; those of the network are KafkaErrors
        hint = ""
        if isinstance(failure, FileNotFoundError) and os.sep not in str(failure.filename):
            hint = f"; what is to be written comes by standard input: echo {failure.filename} | minibroker produce ..."
        complain("produce", f"{failure.filename or 'standard input'}: {failure.strerror or failure}{hint}")
        return USAGE


async def _produce(cluster: Cluster, options: argparse.Namespace) -> int:
    topic = await cluster.topic(options.topic, create=True)
    if options.partition >= 0 and options.partition not in topic.partitions:
        reason = f"{options.topic} has {len(topic.partitions)} partitions, there is no {options.partition}"
        raise Refused(reason, FAILED)
    drafts = _drafts(options)
    progress = Progress(cluster.clock, "written", is_wanted=not options.quiet and not sys.stdin.isatty())
    under_way: Pending = deque()
    counts = [0, 0]  # taken, acknowledged
    failure: Exception | None = None
    async with _producer(cluster, options) as producer:
        with progress:
            try:
                await _send(producer, drafts, options, under_way, counts, progress)
                await producer.flush()
                _settle(under_way, counts, progress, options.verbose)
            except _Undelivered as undelivered:
                failure = undelivered.__cause__  # type: ignore[assignment]
        if failure is not None:
            await producer.flush()
            while under_way:
                try:
                    _settle(under_way, counts, progress, options.verbose)
                except _Undelivered:
                    continue
    if failure is None:
        return DONE
    complain("produce", f"{counts[1]} of {counts[0]} records were written, then: {failure}")
    return FAILED


class _Undelivered(Exception):
    """A record was refused; the cause says why."""


def _producer(cluster: Cluster, options: argparse.Namespace) -> Producer:
    from minibroker.client.producer import Producer

    given = dict(text.partition("=")[::2] for text in options.properties)
    acks = options.acks or given.get("acks") or given.get("request.required.acks") or "all"
    codec = options.codec or given.get("compression.codec") or given.get("compression.type") or "none"
    idempotent = options.idempotent or given.get("enable.idempotence") == "true"
    if acks not in ("all", "-1", "0", "1"):
        raise Refused(f"acks {acks}: say all, 1 or 0")
    if idempotent and acks in ("0", "1"):
        raise Refused("--idempotent needs acks all")
    if codec not in CODECS:
        raise Refused(f"{codec}: there are {', '.join(CODECS)}")
    return Producer(
        cluster,
        acks=-1 if acks == "all" else int(acks),
        compression=codec,
        idempotent=idempotent,
        linger_ms=int(float(given.get("linger.ms") or given.get("queue.buffering.max.ms") or 0)),
        batch_bytes=int(given.get("batch.size", BATCH_BYTES)),
    )


async def _send(
    producer: Producer,
    drafts: AsyncIterator[list[Draft]],
    options: argparse.Namespace,
    under_way: Pending,
    counts: list[int],
    progress: Progress,
) -> None:
    topic, partition = options.topic, options.partition if options.partition >= 0 else None
    limit = sys.maxsize if options.count is None else options.count
    async for some in drafts:
        for draft in some:
            if counts[0] == limit:
                return
            pending = await producer.enqueue(topic, draft.value, draft.key, draft.headers, partition, draft.timestamp)
            under_way.append(pending)
            counts[0] += 1
            if options.sync:
                await producer.flush()
            if len(under_way) >= UNDER_WAY_MAX or options.sync:
                _settle(under_way, counts, progress, options.verbose)
        size_bytes = sum(len(draft.value or b"") + len(draft.key or b"") for draft in some)
        progress.add(len(some), size_bytes)
        _settle(under_way, counts, progress, options.verbose)


def _settle(under_way: Pending, counts: list[int], progress: Progress, is_verbose: bool) -> None:
    """Look at the records whose answers are there, in order; raise for the first that failed."""
    while under_way and under_way[0].done():
        done = under_way.popleft()
        if failure := done.exception():
            raise _Undelivered from failure
        counts[1] += 1
        if is_verbose:
            place = done.result()
            progress.say(f"% Message delivered to partition {place.partition} (offset {place.offset})")


async def _drafts(options: argparse.Namespace) -> AsyncIterator[list[Draft]]:
    parse = parser_of(options)
    delimiter = unescaped(options.delimiter)
    if not delimiter:
        raise Refused("-D: an empty delimiter divides nothing")
    if not options.files:
        async for some in lines(sys.stdin.fileno(), delimiter):
            yield [parse(line) for line in some]
    for path in options.files:
        with open(path, "rb") as file:
            if options.lines:
                async for some in lines(file.fileno(), delimiter):
                    yield [parse(line) for line in some]
            else:
                yield [parse(file.read())]

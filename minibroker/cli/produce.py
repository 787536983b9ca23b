"""`minibroker produce`, also `minibroker -P`: lines of stdin or files become records, with the options of kcat and
kafka-console-producer.

Reading goes on while records are under way, as far as the producer has room. What must hold: the exit status is 0 only
if every record has been acknowledged (acks 0: sent), and every transaction committed, or aborted if that was asked for.
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
from minibroker.cli.status import DONE, FAILED, TERMINATED, USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    import asyncio
    from collections.abc import AsyncIterator, Coroutine

    from minibroker.cli.input import Draft
    from minibroker.client.accumulator import RecordMetadata
    from minibroker.client.cluster import Cluster
    from minibroker.client.producer import Producer

    Pending = deque[asyncio.Future[RecordMetadata]]

DESCRIPTION = "Write a record for each line of standard input, or one for each file."
EPILOG = (
    "Without -K a line is the value; with -K ':' the line 'k:v' is key k and value v. With --transactional-id all "
    "records are one transaction, unless --transaction-size says how many."
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PROPERTIES = (
    "acks", "request.required.acks", "batch.size", "compression.codec", "compression.type", "enable.idempotence",
    "linger.ms", "queue.buffering.max.ms", "transaction.timeout.ms", "transactional.id",
)  # fmt: skip
BATCH_BYTES = 64 * 1024
TRANSACTION_TIMEOUT_MS = 60_000
UNDER_WAY_MAX = 20_000  # futures to remember; those that are done are dropped on the way


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("files", nargs="*", metavar="FILE", help="each is the value of one record; TOPIC without -t")
    parser.add_argument("-t", "--topic", help="may also stand in front of the files: minibroker produce orders")
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
        "--transactional-id", metavar="ID", help="write in transactions; whoever had the id before is fenced"
    )
    parser.add_argument(
        "--transaction-size", type=int, metavar="N", help="commit after every N records, not only at the end"
    )
    parser.add_argument("--abort", action="store_true", help="abort each transaction in place of committing it")
    parser.add_argument(
        "--property", "--reader-property", dest="console", action="append", default=[], metavar="KEY=VALUE",
        help="as of kafka-console-producer: " + ", ".join(READER_PROPERTIES),
    )  # fmt: skip
    parser.add_argument("--producer-property", dest="properties", action="append", metavar="KEY=VALUE", help="as -X")
    parser.add_argument("--sync", action="store_true", help="one record after the other")
    parser.add_argument("-v", "--verbose", action="store_true", help="say where each record went")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on standard error")


def run(options: argparse.Namespace) -> int:
    if options.topic is None:
        if not options.files:
            complain("produce", "a topic is missing, as in: echo hello | minibroker produce orders")
            return USAGE
        options.topic = options.files.pop(0)

    async def work(cluster: Cluster) -> int:
        if _transactional_id(options) is None:
            return await _produce(cluster, options)
        return await _unless_terminated(_produce(cluster, options))

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


async def _unless_terminated(work: Coroutine[None, None, int]) -> int:
    """Let SIGTERM end it as Ctrl-C does: a transaction left open would hold its readers up until it times out."""
    import asyncio
    import signal
    from contextlib import suppress

    task, own = asyncio.ensure_future(work), asyncio.current_task()
    with suppress(RuntimeError):  # signals are for the main thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        if own is None or own.cancelling():  # by Ctrl-C, of which asyncio makes a KeyboardInterrupt
            raise
        return TERMINATED


async def _produce(cluster: Cluster, options: argparse.Namespace) -> int:
    from minibroker.errors import KafkaError

    topic = await cluster.topic(options.topic, create=True)
    if options.partition >= 0 and options.partition not in topic.partitions:
        reason = f"{options.topic} has {len(topic.partitions)} partitions, there is no {options.partition}"
        raise Refused(reason, FAILED)
    drafts = _drafts(options)
    is_transactional = _transactional_id(options) is not None
    if not is_transactional and (options.abort or options.transaction_size is not None):
        raise Refused("--transaction-size and --abort need --transactional-id")
    if options.transaction_size is not None and options.transaction_size < 1:
        raise Refused("--transaction-size: at least 1")
    progress = Progress(cluster.clock, "written", is_wanted=not options.quiet and not sys.stdin.isatty())
    under_way: Pending = deque()
    counts = [0, 0, 0]  # taken, acknowledged, committed
    failure: Exception | None = None
    async with _producer(cluster, options) as producer:
        if is_transactional:
            await producer.init_transactions()
            producer.begin_transaction()
        with progress:
            try:
                await _send(producer, drafts, options, under_way, counts, progress)
                await producer.flush()
                _settle(under_way, counts, progress, options.verbose)
                if is_transactional:
                    await _end_transaction(producer, options, counts)
            except _Undelivered as undelivered:
                failure = undelivered.__cause__  # type: ignore[assignment]
            except KafkaError as error:
                if not is_transactional:
                    raise
                failure = error  # the transaction has failed, and takes no more records
        if failure is not None:  # a transaction that is open is aborted when the producer is closed
            await producer.flush()
            while under_way:
                try:
                    _settle(under_way, counts, progress, options.verbose)
                except _Undelivered:
                    continue
    if failure is None:
        return DONE
    done = f"{counts[2]} of {counts[0]} records were committed"
    if not is_transactional:
        done = f"{counts[1]} of {counts[0]} records were written"
    complain("produce", f"{done}, then: {failure}")
    return FAILED


async def _end_transaction(producer: Producer, options: argparse.Namespace, counts: list[int]) -> None:
    from minibroker.errors import KafkaError

    try:
        await (producer.abort_transaction() if options.abort else producer.commit_transaction())
    except KafkaError as error:
        raise _Undelivered from error
    if not options.abort:
        counts[2] = counts[1]


class _Undelivered(Exception):
    """A record was refused; the cause says why."""


def _producer(cluster: Cluster, options: argparse.Namespace) -> Producer:
    from minibroker.client.producer import Producer

    given = dict(text.partition("=")[::2] for text in options.properties)
    acks = options.acks or given.get("acks") or given.get("request.required.acks") or "all"
    codec = options.codec or given.get("compression.codec") or given.get("compression.type") or "none"
    transactional_id = _transactional_id(options)
    is_wanted = options.idempotent or {"true": True, "false": False}.get(given.get("enable.idempotence", "").lower())
    idempotent = transactional_id is not None if is_wanted is None else is_wanted
    if transactional_id is not None and not idempotent:
        raise Refused("--transactional-id: not with enable.idempotence=false")
    if acks not in ("all", "-1", "0", "1"):
        raise Refused(f"acks {acks}: say all, 1 or 0")
    if idempotent and acks in ("0", "1"):
        raise Refused(f"{'--idempotent' if transactional_id is None else '--transactional-id'} needs acks all")
    if codec not in CODECS:
        raise Refused(f"{codec}: there are {', '.join(CODECS)}")
    return Producer(
        cluster,
        acks=-1 if acks == "all" else int(acks),
        compression=codec,
        idempotent=idempotent,
        linger_ms=int(float(given.get("linger.ms") or given.get("queue.buffering.max.ms") or 0)),
        batch_bytes=int(given.get("batch.size", BATCH_BYTES)),
        transactional_id=transactional_id,
        transaction_timeout_ms=int(given.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)),
    )


def _transactional_id(options: argparse.Namespace) -> str | None:
    given = dict(text.partition("=")[::2] for text in options.properties)
    named = given.get("transactional.id") if options.transactional_id is None else options.transactional_id
    if named == "":  # of a script whose variable is not set: its records would count one by one
        raise Refused("--transactional-id: it is empty; leave it out to write without transactions")
    return named


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
            is_full = options.transaction_size is not None and counts[0] % options.transaction_size == 0
            if options.sync or is_full:
                await producer.flush()
            if is_full:
                _settle(under_way, counts, progress, options.verbose)
                await _end_transaction(producer, options, counts)
                producer.begin_transaction()
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

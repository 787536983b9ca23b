"""`minibroker consume`, also `minibroker -C`: records to stdout, with the options of kcat and kafka-console-consumer.

Begins at the beginning, as kcat does, and waits for more unless it is told where to end; with --group where the group
goes on (group_reading.py). What is no record (ends of partitions, progress) goes to stderr.
"""

from __future__ import annotations

import sys

from minibroker.cli.connect import Refused, run_with_cluster
from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.progress import Progress
from minibroker.cli.record_format import CONSOLE_PROPERTIES, console, formatted, json_lines, plain, unescaped
from minibroker.cli.status import DONE, FAILED
from minibroker.cli.words import milliseconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from minibroker.cli.group_reading import GroupReading
    from minibroker.cli.record_format import Writer
    from minibroker.client.cluster import Cluster, TopicPartition
    from minibroker.client.consumer import Consumer
    from minibroker.client.offsets import AtTime

DESCRIPTION = "Write records to standard output, from the beginning, and wait for more. Ctrl-C ends it."
EPILOG = (
    "-f knows %t topic, %p partition, %o offset, %k key, %s value, %T timestamp, %h headers, "
    "%K and %S their sizes (-1: null), %R the value's size in four bytes, and \\n \\t \\xHH."
)
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
RESETS = {"smallest": "earliest", "earliest": "earliest", "largest": "latest", "latest": "latest", "error": "error"}
BEGINNING, END = ("beginning", "earliest", "smallest"), ("end", "latest", "largest")
PROPERTIES = ("isolation.level", "auto.offset.reset", "check.crcs", "fetch.max.bytes", "max.partition.fetch.bytes")
WAIT_MS = 500  # for more
WAIT_AT_END_MS = 10  # if it ends when there is no more


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("names", nargs="*", metavar="TOPIC", help="what to read; the same as --topic")
    parser.add_argument("-t", "--topic", dest="more_names", action="append", default=[], metavar="TOPIC")
    parser.add_argument("-p", "--partition", default="", metavar="N,N", help="only these")
    parser.add_argument(
        "-g", "-G", "--group", metavar="NAME",
        help="share partitions with others of this group, go on where it has committed, commit what is written",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--offset", dest="offsets", action="append", default=[], metavar="WHERE",
        help="beginning, end, N, -N before the end, s@TIME, and to stop: e@TIME; TIME is ms since 1970 or a date; "
        "with --group beginning or end, where nothing is committed",
    )  # fmt: skip
    parser.add_argument("--from-beginning", action="store_true", help="as happens if nothing is said")
    parser.add_argument("-e", "--exit", dest="exits", action="store_true", help="end when everything has been read")
    parser.add_argument(
        "-c", "-n", "--max-messages", "--count", dest="count", type=int, metavar="N", help="end after so many"
    )
    parser.add_argument("--timeout-ms", type=int, metavar="MS", help="end when nothing came for so long")
    parser.add_argument(
        "--isolation-level", choices=ISOLATION_LEVELS,
        help="as kafka-console-consumer read_uncommitted by default, with -C as kcat read_committed",
    )  # fmt: skip
    parser.add_argument("-f", "--format", metavar="TEXT", help="how to write a record, with kcat's words: see below")
    parser.add_argument("-K", "--key-delimiter", metavar="TEXT", help="write the key too, and this behind it")
    parser.add_argument("-D", "--delimiter", default="\\n", metavar="TEXT", help="what follows a record (\\n)")
    parser.add_argument("-Z", "--null", action="store_true", help="write NULL for null; otherwise nothing")
    parser.add_argument("-J", "--json", action="store_true", help="a line of JSON for each record, as kcat's")
    parser.add_argument(
        "--property", "--formatter-property", dest="console", action="append", default=[], metavar="KEY=VALUE",
        help="as of kafka-console-consumer: " + ", ".join(CONSOLE_PROPERTIES),
    )  # fmt: skip
    parser.add_argument("--consumer-property", dest="properties", action="append", metavar="KEY=VALUE", help="as -X")
    parser.add_argument("-u", "--unbuffered", action="store_true", help="as happens anyway: every answer is written")
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing on standard error")


def run(options: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        await _consume(cluster, options)
        return DONE

    try:
        return run_with_cluster("consume", options, work, PROPERTIES)
    except KeyboardInterrupt:
        return DONE  # the usual end


async def _consume(cluster: Cluster, options: argparse.Namespace) -> None:
    from minibroker.client.consumer import Consumer

    start, end = _bounds(options)
    if options.group is not None and (options.partition or end is not None or start not in ("earliest", "latest")):
        reason = "a group goes on where it has committed, with what it is given: -o beginning or end, and no -p"
        raise Refused(f"--group {options.group}: {reason}; minibroker groups --reset-offsets lets it go on elsewhere")
    partitions = await _partitions(cluster, options)

    def broker_of(topic: str, partition: int) -> int:
        known = cluster.topics.get(topic)
        return known.partitions[partition].leader_id if known else -1

    if options.json:
        writer = json_lines(broker_of)
    elif options.console:
        writer = console(options.console)
    else:
        null = b"NULL" if options.null else b""
        key_delimiter = None if options.key_delimiter is None else unescaped(options.key_delimiter)
        delimiter = unescaped(options.delimiter)
        writer = formatted(options.format, null) if options.format else plain(delimiter, key_delimiter, null)
    if options.count == 0:
        return
    given = dict(text.partition("=")[::2] for text in options.properties)
    for name, allowed in (("auto.offset.reset", RESETS), ("isolation.level", ISOLATION_LEVELS)):
        if given.get(name, next(iter(allowed))) not in allowed:
            raise Refused(f"-X {name}={given[name]}: there are {', '.join(allowed)}")
    reset = given.get("auto.offset.reset", "error")
    if options.group is not None and not options.offsets and "auto.offset.reset" in given:
        start = RESETS[reset]
    elif options.group is not None:
        reset = str(start)
    consumer = Consumer(
        cluster,
        isolation_level=options.isolation_level or given.get("isolation.level", "read_uncommitted"),
        out_of_range=RESETS[reset],
        check_crc=given.get("check.crcs") != "false",
        bytes_max=int(given.get("fetch.max.bytes", 50 << 20)),
        partition_bytes_max=int(given.get("max.partition.fetch.bytes", 4 << 20)),
    )
    if options.group is not None:
        await _read_for_group(cluster, consumer, options, writer, str(start))
        return
    async with consumer:
        stops = await _stops(cluster, partitions, end) if end is not None else {}
        await consumer.assign([(*key, where) for key, where in (await _starts(cluster, partitions, start)).items()])
        await _copy(cluster, consumer, options, writer, stops)


async def _read_for_group(
    cluster: Cluster, consumer: Consumer, options: argparse.Namespace, writer: Writer, policy: str
) -> None:
    """Write records as a member of a group; Ctrl-C too commits and leaves."""
    from minibroker.cli.group_reading import GroupReading
    from minibroker.client.membership import Membership

    if not options.group:
        raise Refused("--group: a group has a name")

    def say(text: str) -> None:
        if not options.quiet:
            print(text, file=sys.stderr)

    names = list(dict.fromkeys([*options.names, *options.more_names]))
    async with consumer, Membership(cluster, options.group, names) as member:
        group = GroupReading(cluster, consumer, member, policy, say)
        try:
            await _copy(cluster, consumer, options, writer, {}, group)
        finally:
            await group.commit()


async def _copy(
    cluster: Cluster,
    consumer: Consumer,
    options: argparse.Namespace,
    writer: Writer,
    stops: dict[TopicPartition, int],
    group: GroupReading | None = None,
) -> None:
    """Write records until an end is reached, if there is one."""
    out = sys.stdout.buffer
    progress = Progress(cluster.clock, "read", is_wanted=not options.quiet and not sys.stdout.isatty())
    left = options.count
    announced: dict[TopicPartition, int] = {}
    wait_ms = WAIT_AT_END_MS if options.exits or stops else min(WAIT_MS, options.timeout_ms or WAIT_MS)
    last_ms = cluster.clock.now_ms()
    with progress:
        while True:
            if group is not None:
                await group.keep_up(wait_ms)
            records = fetched = await consumer.fetch(wait_ms)
            if stops:
                records = [record for record in records if record.offset < stops[record.topic, record.partition]]
            if left is not None:
                records = records[:left]
                left -= len(records)
            if records:
                data = b"".join([writer(record) for record in records])
                out.write(data)
                out.flush()
                progress.add(len(records), len(data))
                last_ms = cluster.clock.now_ms()
            if group is not None:
                await group.printed(fetched[len(records) :], is_idle=not records)
            if left == 0:
                return
            is_done = options.exits and consumer.is_at_end
            if not options.quiet:
                _announce_ends(consumer, announced, progress, is_done)
            if is_done or (stops and all(consumer.position(*key) >= stop for key, stop in stops.items())):
                return
            if options.timeout_ms is not None and cluster.clock.now_ms() - last_ms >= options.timeout_ms:
                return


def _announce_ends(consumer: Consumer, announced: dict[TopicPartition, int], progress: Progress, is_done: bool) -> None:
    """Say as kcat does where partitions end, once for each end."""
    for key in consumer.assignment():
        offset = consumer.position(*key)
        if offset >= consumer.high_watermark(*key) >= 0 and announced.get(key) != offset:
            announced[key] = offset
            progress.say(f"% Reached end of topic {key[0]} [{key[1]}] at offset {offset}{': exiting' * is_done}")


# Where to begin and to end


def _bounds(options: argparse.Namespace) -> tuple[int | str | AtTime, AtTime | None]:
    """Return the start, a number below zero counting from the end, and the moment to stop at."""
    from minibroker.client.offsets import AtTime

    start: int | str | AtTime = "earliest"
    end = None
    for text in options.offsets:
        try:
            if text[:2] == "s@":
                start = AtTime(milliseconds(text[2:]))
            elif text[:2] == "e@":
                end = AtTime(milliseconds(text[2:]))
            elif text in BEGINNING:
                start = "earliest"
            elif text in END:
                start = "latest"
            elif text == "stored" and options.group is not None:
                continue  # as happens anyway
            elif text == "stored":
                raise Refused("-o stored: offsets are stored for groups, say --group NAME; or -o beginning or end")
            else:
                start = int(text)
        except ValueError:
            raise Refused(f"-o {text}: say beginning, end, N, -N, s@TIME or e@TIME") from None
    if options.from_beginning and options.offsets:
        raise Refused("--from-beginning and -o: which of them?")
    return start, end


async def _partitions(cluster: Cluster, options: argparse.Namespace) -> list[TopicPartition]:
    names = list(dict.fromkeys([*options.names, *options.more_names]))
    if not names:
        raise Refused("which topic? -t NAME")
    try:
        wanted = [int(text) for text in options.partition.split(",") if text]
    except ValueError:
        raise Refused(f"-p {options.partition}: say a number, or several with commas") from None
    found = []
    for name, topic in (await cluster.metadata(names)).items():
        if topic.error:
            from minibroker.errors import error_name

            code = error_name(topic.error)
            reason = "there is no such topic; minibroker topics --list shows what there is"
            raise Refused(f"{name}: {reason if code == 'UNKNOWN_TOPIC_OR_PARTITION' else code}", FAILED)
        for number in wanted:
            if number not in topic.partitions:
                raise Refused(f"{name} has {len(topic.partitions)} partitions, there is no {number}", FAILED)
        found += [(name, number) for number in wanted or topic.partitions]
    return found


async def _starts(
    cluster: Cluster, partitions: list[TopicPartition], start: int | str | AtTime
) -> dict[TopicPartition, int | str | AtTime]:
    if not isinstance(start, int) or start >= 0:
        return dict.fromkeys(partitions, start)
    from minibroker.client.admin import Admin

    admin = Admin(cluster)
    ends = await admin.list_offsets(dict.fromkeys(partitions, "latest"))
    begins = await admin.list_offsets(dict.fromkeys(partitions, "earliest"))
    return {key: max(begins[key].offset, ends[key].offset + start) for key in partitions}


async def _stops(cluster: Cluster, partitions: list[TopicPartition], end: AtTime) -> dict[TopicPartition, int]:
    """Return where a moment is reached; where nothing is so new, the end as it is now."""
    from minibroker.client.admin import Admin

    admin = Admin(cluster)
    found = await admin.list_offsets(dict.fromkeys(partitions, end))
    ends = await admin.list_offsets(dict.fromkeys(partitions, "latest"))
    return {key: found[key].offset if found[key].offset >= 0 else ends[key].offset for key in partitions}

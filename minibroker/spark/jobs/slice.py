"""`slice`: a small part of topics to test with: sampled, masked, moved in time.

    cut(spark, source, Cut(share=0.01, masks=parse_masks(["value.email=fake"]), salt="..."), to_files="fixtures")

An entity is what records are about: by default their key, or a field of the JSON in their value or key. Whether one is
in the slice is a hash of it and the seed, so an order is there if and only if its customer is, whatever topic they are
in, and tomorrow's slice has the same ones. Entities are compared as text: a key `17`, a field 17 and a field "17" are
the same.
What must hold: an entity is in the slice in all topics or in none; what is to be masked is masked before it is written
anywhere (slice_masking.py); order within a partition stays; records go from task to task and never through the driver.
Not here: lines of JSON (tools/json_lines.py), writing to brokers and directories (loading.py).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import groupby
from operator import or_
from typing import Any, NamedTuple

from minibroker.clock import LoopClock
from minibroker.controller.controller import check_name
from minibroker.errors import KafkaError
from minibroker.spark.arrow_map import map_in_arrow
from minibroker.spark.folders import Folder, open_folder
from minibroker.spark.jobs.arguments import (
    add_repeated,
    add_source_arguments,
    add_target_arguments,
    check_mode,
    source_options,
    target_options,
)
from minibroker.spark.jobs.loading import load
from minibroker.spark.jobs.loading_files import RECORDS_DDL
from minibroker.spark.jobs.loading_generator import time_ms
from minibroker.spark.jobs.progress import QUIET, Progress
from minibroker.spark.jobs.slice_masking import FAKE, HASH, HOWS, WHOLE, Mask, masking, parse_masks
from minibroker.spark.jobs.summary import Summary, Table
from minibroker.spark.jobs.tasks import attempt
from minibroker.spark.option_values import OptionError, duration_ms
from minibroker.spark.options import OPTIONS, SKIP, parse
from minibroker.spark.reading import all_ranges
from minibroker.spark.session import use_source

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pyarrow as pa

    from minibroker.clock import Clock


DESCRIPTION = "Take a sampled, masked, shifted part of topics, as a fixture for tests or as a broker's directory."
EPILOG = """examples:
  minibroker spark slice --path data -t orders,customers --sample 0.01 --by orders:value.customer --to-files fixtures
  minibroker spark slice --bootstrap-server localhost:9092 -t orders --records 1000 \\
      --mask key=hash --mask value.email=fake --mask value.card=redact --shift-to now --to-path test-data
"""
SALT = "MINIBROKER_SALT"
NOW = "now"
SERVERS = "kafka.bootstrap.servers"
SHARES = 1 << 30  # into how many parts entities fall


class By:
    """What a record is about: `[TOPIC:]key[.PATH]` or `value.PATH`."""

    def __init__(self, text: str):
        self.text = text
        self.topic, _, rest = text.rpartition(":")
        self.place, dot, self.path = rest.partition(".")
        if self.place not in ("key", "value") or (dot and not self.path) or (self.place == "value" and not self.path):
            raise OptionError(f"--by {text}: write it as key, key.FIELD or value.FIELD, perhaps with TOPIC: in front")

    def column(self, sql: Any) -> Any:
        text = sql.col(self.place).cast("string")
        if not self.path:
            return text
        steps = "".join("['" + step.replace("'", "") + "']" for step in self.path.split("."))
        return sql.get_json_object(text, f"${steps}")


class Cut(NamedTuple):
    """What is taken of topics, and what becomes of it."""

    share: float = 1.0
    by: Sequence[By] = ()
    only: Sequence[str] = ()  # these entities and no others
    drop_others: bool = False  # records that are about nothing; else they are sampled one by one
    records: int | None = None  # of each partition at most, the newest
    seed: int = 0
    masks: Sequence[Mask] = ()
    salt: str = ""
    allow_unused_masks: bool = False
    shift_ms: int = 0
    shift_to: str | None = None  # when the newest record is to be: `now`, or a time
    prefix: str = ""  # of the names of topics
    by_key: int | None = None  # into so many partitions; None: they stay as they are


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    what = parser.add_argument_group("which records")
    what.add_argument("--sample", type=float, default=1.0, metavar="SHARE", help="of the keys, as 0.01 (all)")
    about = "what records are about: key, value.FIELD, key.FIELD; TOPIC: in front for one topic (key)"
    add_repeated(what, "--by", metavar="WHAT", help=about)
    add_repeated(what, "--only", metavar="ID", help="records about this")
    what.add_argument("--drop-others", action="store_true", help="leave out records that are about nothing")
    what.add_argument("--records", type=int, metavar="N", help="of each partition at most, the newest")
    what.add_argument("--seed", type=int, default=0, help="another number takes other keys (0)")
    how = parser.add_argument_group("what becomes of them")
    masked = f"key, value, value.FIELD.FIELD, header.NAME, with TOPIC: in front for one topic; {', '.join(HOWS)}"
    add_repeated(how, "--mask", metavar="WHAT=HOW", help=masked)
    how.add_argument("--salt", metavar="TEXT", help=f"the secret of hash and fake; better in {SALT}")
    how.add_argument("--allow-unused-masks", action="store_true", help="masks may meet nothing; else that is an error")
    how.add_argument("--shift", metavar="TIME", help="make all later by 36h, 7d or 500ms; earlier by --shift=-36h")
    how.add_argument("--shift-to", metavar="WHEN", help="move all so that the newest is at that time, or now")
    how.add_argument("--prefix", default="", metavar="TEXT", help="in front of the names of topics")
    how.add_argument("--by-key", type=int, metavar="N", help="into N partitions by key; else they stay as they are")
    add_target_arguments(parser)
    parser.add_argument("--to-files", metavar="DIR", help="lines of JSON, TOPIC.jsonl, for minibroker produce -J")


def run(spark: Any, options: argparse.Namespace, progress: Progress) -> Summary:
    told = {name: value for name, value in vars(options).items() if name in Cut._fields}
    asked = Cut(**told)._replace(
        share=options.sample,
        by=[By(text) for text in options.by],
        masks=parse_masks(options.mask),
        salt=options.salt or os.environ.get(SALT, ""),
        shift_ms=shift_of(options.shift) if options.shift else 0,
    )
    target = target_options(options)
    return cut(spark, source_options(options), asked, target=target, to_files=options.to_files, progress=progress)


def shift_of(text: str) -> int:
    """Return milliseconds."""
    is_earlier = text.startswith("-")
    return duration_ms("--shift", text.lstrip("-")) * (-1 if is_earlier else 1)


def cut(
    spark: Any,
    source: Mapping[str, str],
    asked: Cut,
    *,
    target: Mapping[str, str] | None = None,
    to_files: str | None = None,
    progress: Progress = QUIET,
    clock: Clock | None = None,
) -> Summary:
    """Write a slice of the topics of `source` to files of JSON lines, or to where `target` says (loading.py)."""
    source = OPTIONS.by_true_names(source)
    check_mode(source)
    from minibroker.spark.source import NAME

    _check(source, asked, target, to_files)
    problems, options = list[str](), parse(source)
    if not options.fail_on_data_loss:
        all_ranges(options, tell=problems.append)
    use_source(spark)
    reader = spark.read.format(NAME).options(**source)
    rows = sampled(reader.option("includeHeaders", "true").load(), asked)
    if asked.masks:  # before all else: rows go through files from task to task
        rows = map_in_arrow(rows, masking(asked.masks, asked.salt), f"{RECORDS_DDL}, about BIGINT, met BIGINT")
    else:
        rows = rows.selectExpr("*", "0 as met")
    notes = []
    if asked.records is not None:
        rows = newest(rows, asked.records)
        notes.append("--records takes the newest of each partition: of some keys the older records are not there")
    rows = rows.persist()  # read once: it is asked for several times
    try:
        with progress.step("reading and sampling"):
            found = _Contents(rows, asked)
        _check_met(found, asked)
        for topic in found.topics:  # also those of brokers that say what no topic can be called
            check_name(asked.prefix + topic)
        shift_ms = _shift_ms(asked, found, clock or LoopClock())
        moved = _moved(rows, shift_ms, asked.prefix)
        if to_files:
            with progress.step(f"writing files to {to_files}"):
                ordered = moved.repartition("topic").sortWithinPartitions("topic", "partition", "offset")
                map_in_arrow(ordered, _writing(open_folder(to_files, spark)), "topic STRING").collect()
        else:
            notes += _write_records(spark, moved, found, dict(target or {}), source, asked, progress)
    finally:
        rows.unpersist()
    figures = {
        "target": to_files or next(iter((target or {}).values())),
        "records": found.records,
        "shifted by seconds": shift_ms / 1000,
        "about nothing": found.others,
        "masked as a whole": found.whole,
    }
    problems += _broken(reader, source)
    if found.whole:
        problems.append(
            f"{found.whole} records have keys or values of which a mask cannot tell what to leave: "
            "they are masked as a whole"
        )
    if not found.partitions:
        problems.append("nothing was found to take")
    tables = [Table("partitions", ["topic", "partition", "records"], found.partitions)]
    if asked.masks:
        tables.append(Table("masks", ["mask", "records"], found.masked))
    return Summary("slice", figures, tables, problems, notes)


def _check(source: Mapping[str, str], asked: Cut, target: Mapping[str, str] | None, to_files: str | None) -> None:
    if bool(target) == bool(to_files):
        raise OptionError("say where the slice goes: one of --to-files, --to-path, --to-bootstrap-server")
    if target and not asked.prefix and SERVERS in target and target[SERVERS] == source.get(SERVERS):
        raise OptionError("the slice would go into the topics that it is taken of: say --prefix, or other brokers")
    try:
        check_name(asked.prefix + "t")
    except KafkaError as error:
        raise OptionError(f"--prefix {asked.prefix}: {error.message}") from None
    if any(mask.how in (HASH, FAKE) for mask in asked.masks) and not asked.salt:
        raise OptionError(
            f"--mask with hash or fake needs a secret: set {SALT}, or --salt TEXT; without one anybody could try "
            "contents until one fits"
        )
    if asked.shift_ms and asked.shift_to:
        raise OptionError("--shift and --shift-to are both there: say one")
    if asked.records is not None and asked.records < 1:
        raise OptionError(f"--records is {asked.records}: it must be above 0")
    if not 0 < asked.share <= 1:
        raise OptionError(f"--sample is {asked.share}: it must be above 0 and at most 1")
    if len({each.topic for each in asked.by}) < len(asked.by):
        raise OptionError("--by: a topic can be sampled by one thing only")


# Which records


def _about(by: Sequence[By]) -> tuple[Any, Any]:
    """Return the column with what a record is about, null if it does not say; and the bit of who of `by` says it."""
    from pyspark.sql import functions as sql  # pyright: ignore

    of_all = [By("key"), *(each for each in by if not each.topic)][-1]
    about, bit = of_all.column(sql), by.index(of_all) if of_all in by else len(by)
    told = sql.when(about.isNotNull(), sql.lit(1 << bit))
    for number, each in enumerate(by):
        if each.topic:
            is_there, column = sql.col("topic") == each.topic, each.column(sql)
            about = sql.when(is_there, column).otherwise(about)
            told = sql.when(is_there, sql.when(column.isNotNull(), sql.lit(1 << number))).otherwise(told)
    return about, sql.coalesce(told, sql.lit(0)).cast("bigint").alias("about")


def sampled(frame: Any, asked: Cut) -> Any:
    """Return the rows of a share of the entities, or of those that are named, with the column `about`."""
    from pyspark.sql import functions as sql  # pyright: ignore

    def is_in(*columns: Any) -> Any:
        return sql.pmod(sql.xxhash64(sql.lit(asked.seed), *columns), sql.lit(SHARES)) < round(asked.share * SHARES)

    about, bits = _about(asked.by)
    frame = frame.select("*", bits)
    if asked.only:
        return frame.where(about.isin(list(asked.only)))
    if asked.drop_others:
        frame = frame.where(about.isNotNull())
    if asked.share == 1:
        return frame
    return frame.where(sql.when(about.isNotNull(), is_in(about)).otherwise(is_in("topic", "partition", "offset")))


def newest(frame: Any, count: int) -> Any:
    """Return the last rows of each partition."""
    from pyspark.sql import Window  # pyright: ignore
    from pyspark.sql import functions as sql  # pyright: ignore

    order = Window.partitionBy("topic", "partition").orderBy(sql.col("offset").desc())
    return frame.withColumn("_row", sql.row_number().over(order)).where(sql.col("_row") <= count).drop("_row")


class _Contents:
    """What is in the slice."""

    def __init__(self, rows: Any, asked: Cut):
        from pyspark.sql import functions as sql  # pyright: ignore

        counted = rows.groupBy("topic", "partition").agg(
            sql.count(sql.lit(1)),
            sql.max(sql.unix_micros("timestamp")),
            sql.count_if(sql.col("about") == 0),
            sql.count_if(sql.col("met") >= WHOLE),
            sql.bit_or("about"),
            *(sql.count_if(sql.col("met").bitwiseAND(mask.bit) != 0) for mask in asked.masks),
        )
        found = sorted(map(tuple, counted.collect()))
        self.partitions = [(asked.prefix + topic, partition, records) for topic, partition, records, *_ in found]
        self.topics = sorted({row[0] for row in found})
        self.newest_ms = max((row[3] // 1000 for row in found), default=0)
        self.records, self.others, self.whole = (sum(row[place] for row in found) for place in (2, 4, 5))
        self.about = reduce(or_, (row[6] for row in found), 0)  # bits
        self.masked = [(mask.what, sum(row[7 + place] for row in found)) for place, mask in enumerate(asked.masks)]


def _check_met(found: _Contents, asked: Cut) -> None:
    """Raise if a name that was said is nowhere: what was meant would be there unsampled, or unmasked."""
    idle = [f"--by {each.text}" for number, each in enumerate(asked.by) if not found.about >> number & 1]
    if not asked.allow_unused_masks:
        idle += [f"--mask {what}" for what, records in found.masked if not records]
    if idle and found.records:
        raise OptionError(
            f"{idle[0]} met nothing in {found.records} records, so nothing was written: is the name right?"
            + (" If it is, --allow-unused-masks" if "--mask" in idle[0] else "")
        )


def _broken(reader: Any, source: Mapping[str, str]) -> list[str]:
    """Return a sentence on the batches that mode=skip has left out, if it has."""
    if source.get("mode", "").lower() != SKIP:
        return []
    broken = reader.option("mode", "quarantine").load()
    offsets = "coalesce(concat(', offsets ', firstOffset, ' to ', lastOffset), '')"
    where = f"concat(topic, '-', partition, {offsets}, ': ', error)"
    count, first = broken.selectExpr("count(*)", f"min({where})").first()
    return [f"{count} broken batches were left out, as {first}"] if count else []


# What becomes of them


def _shift_ms(asked: Cut, found: _Contents, clock: Clock) -> int:
    if asked.shift_to is None:
        return asked.shift_ms
    try:
        wanted = clock.now_ms() if asked.shift_to == NOW else time_ms(asked.shift_to)
    except ValueError:
        raise OptionError(f"--shift-to {asked.shift_to}: write now, ms since 1970, or 2024-01-31T12:00") from None
    return wanted - found.newest_ms


def _moved(rows: Any, shift_ms: int, prefix: str) -> Any:
    from pyspark.sql import functions as sql  # pyright: ignore

    # By numbers: days of some time zones have 23 hours.
    later = sql.timestamp_micros(sql.unix_micros("timestamp") + shift_ms * 1000)
    return rows.withColumns({"timestamp": later, "topic": sql.concat(sql.lit(prefix), "topic")}).drop("about", "met")


def _writing(folder: Folder) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what writes TOPIC.jsonl of records that come in their order; it yields topics."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for topic, lines in groupby(_lines(batches), lambda line: line[0]):
            with folder.writing(f"{topic}.jsonl", attempt()) as file:
                for _, line in lines:
                    file.write(line)
            yield pa.RecordBatch.from_pydict({"topic": [topic]})

    return write


def _lines(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, bytes]]:
    """Yield topics and lines."""
    import pyarrow as pa

    from minibroker.tools.json_lines import line_of

    names = ("topic", "partition", "offset", "key", "value", "headers", "timestamp", "timestampType")
    for batch in batches:
        columns = {name: batch.column(name) for name in names}
        columns["timestamp"] = columns["timestamp"].cast(pa.int64())
        rows = zip(*(column.to_pylist() for column in columns.values()), strict=True)
        for topic, partition, offset, key, value, pairs, time, kind in rows:
            headers = [(each["key"], each["value"]) for each in pairs or ()]
            line = line_of(topic, partition, offset, key, value, headers, time // 1000, kind)
            yield topic, line.encode() + b"\n"


def _write_records(
    spark: Any,
    rows: Any,
    found: _Contents,
    target: dict[str, str],
    source: Mapping[str, str],
    asked: Cut,
    progress: Progress,
) -> list[str]:
    """Write all topics at once to brokers, to a directory those at once that get as many partitions; return notes."""
    counts = dict.fromkeys(found.topics, asked.by_key or 0)
    if "path" in target and not asked.by_key:
        for each in all_ranges(parse(source)):  # also partitions of which nothing is in the slice
            counts[each.log.topic] = max(counts.get(each.log.topic, 0), each.log.partition + 1)
    rows = rows.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")
    rows = rows.drop("partition") if asked.by_key else rows
    notes: dict[str, None] = {}  # as a set that keeps its order
    for count in sorted(set(counts.values())):
        names = [asked.prefix + topic for topic in found.topics if counts[topic] == count]
        told = target | ({"partitions": str(count)} if "path" in target else {})
        if names:
            done = load(spark, rows.where(rows["topic"].isin(names)), told, job="slice", progress=progress)
            notes |= dict.fromkeys(done.notes)
    return list(notes)

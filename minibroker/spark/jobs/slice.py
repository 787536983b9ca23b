"""`slice`: a small part of topics to test with: sampled, masked, moved in time.

    cut(spark, source, Cut(share=0.01, masks=parse_masks(["value.email=fake"]), salt="..."), to_files="fixtures")

An entity is what records are about: by default their key, or a field of the JSON in their value or key. Whether one is
in the slice is a hash of it and the seed, so an order is there if and only if its customer is, whatever topic they are
in, and tomorrow's slice has the same ones. Entities are compared as text: a key `17`, a field 17 and a field "17" are
the same.
What must hold: an entity is in the slice in all topics or in none; what is to be masked is masked before it is written
anywhere (slice_masking.py); order within a partition stays.
Not here: lines of JSON (slice_lines.py), writing to brokers and directories (loading.py).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from minibroker.clock import LoopClock
from minibroker.spark.arrow_map import map_in_arrow
from minibroker.spark.folders import open_folder
from minibroker.spark.jobs.arguments import (
    add_repeated,
    add_source_arguments,
    add_target_arguments,
    source_options,
    target_options,
)
from minibroker.spark.jobs.export_ranges import Ranges, available
from minibroker.spark.jobs.loading_generator import time_ms
from minibroker.spark.jobs.progress import Progress
from minibroker.spark.jobs.slice_masking import HOWS, MASKS_MAX, Mask, Masker, parse_masks, unused
from minibroker.spark.jobs.summary import Summary, Table
from minibroker.spark.option_values import OptionError, duration_ms
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


class Cut:
    """What is taken of topics, and what becomes of it."""

    def __init__(
        self,
        *,
        share: float = 1.0,
        by: Sequence[By] = (),
        entities: Sequence[str] = (),
        keep_others: bool = True,
        records: int | None = None,
        seed: int = 0,
        masks: Sequence[Mask] = (),
        salt: str = "",
        may_be_unused: bool = False,
        shift_ms: int = 0,
        shift_to: str | None = None,
        prefix: str = "",
        by_key: int | None = None,
    ):
        self.share = share
        self.by = list(by)
        self.entities = list(entities)  # these and no others
        self.keep_others = keep_others  # records that are about nothing
        self.records = records  # of each partition at most, the newest
        self.seed = seed
        self.masks = list(masks)
        self.salt = salt
        self.may_be_unused = may_be_unused  # masks that meet nothing
        self.shift_ms = shift_ms
        self.shift_to = shift_to  # when the newest record is to be: `now`, or a time
        self.prefix = prefix  # of the names of topics
        self.by_key = by_key  # into so many partitions; None: they stay as they are
        if any(mask.needs_salt for mask in masks) and not salt:
            raise OptionError(
                f"--mask with hash or fake needs a secret: set {SALT}, or --salt TEXT; without one anybody could try "
                "contents until one fits"
            )
        if shift_ms and shift_to:
            raise OptionError("--shift and --shift-to are both there: say one")
        if records is not None and records < 1:
            raise OptionError(f"--records is {records}: it must be above 0")


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
    asked = Cut(
        share=options.sample,
        by=[By(text) for text in options.by],
        entities=options.only,
        keep_others=not options.drop_others,
        records=options.records,
        seed=options.seed,
        masks=parse_masks(options.mask),
        may_be_unused=options.allow_unused_masks,
        salt=options.salt or os.environ.get(SALT, ""),
        shift_ms=shift_of(options.shift) if options.shift else 0,
        shift_to=options.shift_to,
        prefix=options.prefix,
        by_key=options.by_key,
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
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Summary:
    """Write a slice of the topics of `source` to files of JSON lines, or to where `target` says (loading.py)."""
    from minibroker.spark.source import NAME

    if bool(target) == bool(to_files):
        raise OptionError("say where the slice goes: one of --to-files, --to-path, --to-bootstrap-server")
    servers = "kafka.bootstrap.servers"
    if target and not asked.prefix and servers in target and target[servers] == source.get(servers):
        raise OptionError("the slice would go into the topics that it is taken of: say --prefix, or other brokers")
    progress, clock = progress or Progress(None, False), clock or LoopClock()
    with progress.step("looking for topics"):
        there = available(source, {}).ranges
    use_source(spark)
    frame = spark.read.format(NAME).options(**{**source, "includeHeaders": "true"}).load()
    rows = sampled(
        frame,
        share=asked.share,
        by=asked.by,
        seed=asked.seed,
        entities=asked.entities,
        keep_others=asked.keep_others,
    )
    rows = newest(rows, asked.records) if asked.records is not None else rows
    if asked.masks:
        from minibroker.spark.jobs.loading_files import RECORDS_DDL

        rows = map_in_arrow(rows, _masking(asked.masks, asked.salt), f"{RECORDS_DDL}, met BIGINT")
    rows = rows.persist()  # read once: it is asked for several times
    try:
        with progress.step("reading and sampling"):
            found = _look(rows, asked)
        idle = unused(asked.masks, found.met) if found.records else []
        if idle and not asked.may_be_unused:
            raise OptionError(
                f"--mask {idle[0].what} met nothing in {found.records} records, so nothing was written: is the name "
                "right? If it is, --allow-unused-masks"
            )
        shift_ms = _shift_ms(asked, found, clock)
        moved = _moved(rows, shift_ms, asked.prefix)
        if to_files:
            _write_files(spark, moved, found, to_files, asked, progress)
        else:
            _write_records(spark, moved, found, dict(target or {}), there, asked, progress)
    finally:
        rows.unpersist()
    where = to_files or next(iter((target or {}).values()))
    return _summary(where, found, shift_ms, asked)


def _masking(masks: Sequence[Mask], salt: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def mask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from minibroker.spark.jobs.slice_masking import masked

        masker = Masker(masks, salt)
        for batch in batches:
            yield masked(batch, masker)

    return mask


class _Contents:
    """What is in the slice."""

    def __init__(self, rows: list[Any]):
        self.partitions = sorted((row["topic"], row["partition"], row["records"]) for row in rows)
        self.newest_ms = max((row["newest"] // 1000 for row in rows), default=0)
        self.whole = sum(row["whole"] for row in rows)  # records that were masked as a whole
        self.met = 0
        for row in rows:
            self.met |= row["met"]
        self.topics = sorted({row["topic"] for row in rows})

    @property
    def records(self) -> int:
        return sum(records for _, _, records in self.partitions)


def _look(rows: Any, asked: Cut) -> _Contents:
    from pyspark.sql import functions as sql  # pyright: ignore

    met = sql.col("met") if asked.masks else sql.lit(0)
    counted = rows.groupBy("topic", "partition").agg(
        sql.count(sql.lit(1)).alias("records"),
        sql.max(sql.unix_micros("timestamp")).alias("newest"),
        sql.bit_or(met).alias("met"),
        sql.sum(sql.shiftright(met, MASKS_MAX)).alias("whole"),
    )
    return _Contents(counted.collect())


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

    if shift_ms:
        # By numbers: days of some time zones have 23 hours.
        later = sql.timestamp_micros(sql.unix_micros("timestamp") + sql.lit(shift_ms * 1000))
        rows = rows.withColumn("timestamp", later)
    if prefix:
        rows = rows.withColumn("topic", sql.concat(sql.lit(prefix), sql.col("topic")))
    names = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    return rows.select(*names)


def _write_files(spark: Any, rows: Any, found: _Contents, place: str, asked: Cut, progress: Progress) -> None:
    from pyspark.sql import functions as sql  # pyright: ignore

    from minibroker.spark.jobs.slice_lines import LINES_DDL, as_lines

    folder = open_folder(place, spark)
    for topic in found.topics:
        name = asked.prefix + topic
        with progress.step(f"writing {name}.jsonl"):
            lines = map_in_arrow(rows.where(sql.col("topic") == name), as_lines, LINES_DDL)
            ordered = lines.orderBy("partition", "offset").select("line").toLocalIterator()
            folder.write(f"{name}.jsonl", "".join(f"{row.line}\n" for row in ordered).encode())


def _write_records(
    spark: Any,
    rows: Any,
    found: _Contents,
    target: dict[str, str],
    there: Ranges,
    asked: Cut,
    progress: Progress,
) -> None:
    from pyspark.sql import functions as sql  # pyright: ignore

    from minibroker.spark.jobs.loading import load

    counts: dict[str, int] = {}
    for topic, partition in there:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    for topic in found.topics:
        name = asked.prefix + topic
        mine = rows.where(sql.col("topic") == name).repartition("partition").sortWithinPartitions("partition", "offset")
        told = {**target, "topic": name}
        if "path" in target:
            told["partitions"] = str(asked.by_key or counts[topic])
        load(spark, mine.drop("partition") if asked.by_key else mine, told, job="slice", progress=progress)


def _summary(where: str, found: _Contents, shift_ms: int, asked: Cut) -> Summary:
    figures: dict[str, Any] = {
        "target": where,
        "records": found.records,
        "shifted by seconds": shift_ms / 1000 if shift_ms else 0,
        "masked as a whole": found.whole,
    }
    rows = [[asked.prefix + topic, partition, records] for topic, partition, records in found.partitions]
    notes = []
    if found.whole:
        notes.append("masked as a whole were keys or values that are no JSON, where a field of it was to be masked")
    if asked.records is not None:
        notes.append("--records takes the newest of each partition: of some keys the older records are not there")
    if not found.records:
        notes.append("nothing was found to take")
    return Summary("slice", figures, [Table("partitions", ["topic", "partition", "records"], rows)], (), notes)


SHARES = 1 << 30  # into how many parts entities fall


class By:
    """What a record is about: `[TOPIC:]key[.PATH]` or `value.PATH`."""

    def __init__(self, text: str):
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


def entity(by: Sequence[By]) -> Any:
    """Return the column with what a record is about; null if it does not say."""
    from pyspark.sql import functions as sql  # pyright: ignore

    common = [each for each in by if not each.topic]
    if len(common) > 1 or len({each.topic for each in by}) < len(by):
        raise OptionError("--by: a topic can be sampled by one thing only")
    rest = (common[0] if common else By("key")).column(sql)
    for each in by:
        if each.topic:
            rest = sql.when(sql.col("topic") == each.topic, each.column(sql)).otherwise(rest)
    return rest


def sampled(
    frame: Any, *, share: float, by: Sequence[By], seed: int, entities: Sequence[str], keep_others: bool
) -> Any:
    """Return the rows of a share of the entities, or of those that are named.

    keep_others: whether rows that are about nothing are sampled one by one; else they are left out.
    """
    from pyspark.sql import functions as sql  # pyright: ignore

    if not 0 < share <= 1:
        raise OptionError(f"--sample is {share}: it must be above 0 and at most 1")
    about = entity(by)
    if entities:
        return frame.where(about.isin(list(entities)))

    def is_in(*columns: Any) -> Any:
        return sql.pmod(sql.xxhash64(sql.lit(seed), *columns), sql.lit(SHARES)) < sql.lit(round(share * SHARES))

    others = is_in("topic", "partition", "offset") if keep_others else sql.lit(False)
    if share == 1:
        return frame if keep_others else frame.where(about.isNotNull())
    return frame.where(sql.when(about.isNotNull(), is_in(about)).otherwise(others))


def newest(frame: Any, count: int) -> Any:
    """Return the last rows of each partition."""
    from pyspark.sql import Window  # pyright: ignore
    from pyspark.sql import functions as sql  # pyright: ignore

    order = Window.partitionBy("topic", "partition").orderBy(sql.col("offset").desc())
    return frame.withColumn("_row", sql.row_number().over(order)).where(sql.col("_row") <= count).drop("_row")

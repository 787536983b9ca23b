"""`import` and `load`: files, or records made up by a rule, to topics or log directories.

    load(spark, rows, {"kafka.bootstrap.servers": "localhost:9092"}) -> Summary

What must hold: rows go where and how the writer of the data source takes them; here is only what becomes of columns.
Topics that are made in a directory keep records of any age, or a broker's retention would delete old ones in minutes.
Not here: files (loading_files.py), rules (loading_generator.py), writing (spark/sink/sink.py, spark/bulk_load/sink.py).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from minibroker.clock import LoopClock
from minibroker.log.compression import CODEC_NAMES
from minibroker.spark.arrow_map import with_arrays
from minibroker.spark.jobs.arguments import add_repeated, add_target_arguments, pairs_of, target_options
from minibroker.spark.jobs.loading_files import (
    DROP,
    WRONG,
    Choice,
    as_records,
    format_of,
    mode_of,
    opened,
    partition_counts,
)
from minibroker.spark.jobs.loading_generator import RULE, generated, parse_spec
from minibroker.spark.jobs.progress import QUIET, Progress
from minibroker.spark.jobs.summary import Summary, Table, sums_of
from minibroker.spark.option_values import OptionError
from minibroker.spark.session import use_source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.clock import Clock
    from minibroker.spark.bulk_load.commit import LoadedPartition
    from minibroker.spark.bulk_load.options import LoadOptions

KEPT = {"retention.ms": "-1"}
DESCRIPTION = "Write files, or records made up by a rule, to topics or log directories."
EPILOG = """examples:
  minibroker spark import orders.jsonl --key id -t orders --to-bootstrap-server localhost:9092
  minibroker spark import lake/topic=orders -t orders --to-path data --partitions 6
  minibroker spark load --generate records=1e9,keys=1000000,skew=1.1,size=lognormal:200:0.5 -t load --to-path data
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE", help="files, folders or URLs")
    parser.add_argument(
        "--format",
        help="parquet, json, csv, text, or any that Spark has; records: lines of slice; else as the names say",
    )
    add_repeated(parser, "--read-option", help="of Spark's reader, as header=true")
    rule = "; ".join(f"{row.name}: {row.text}" for row in RULE)
    parser.add_argument("--generate", metavar="NAME=VALUE,...", help=f"make records up instead. {rule}")
    parser.add_argument("--key", metavar="COLUMN", help="the key of records")
    parser.add_argument("--value", metavar="COLUMN", help="the value; json: all columns (the column value, or json)")
    parser.add_argument("--timestamp", metavar="COLUMN", help="the time of records, as time, text or ms; else now")
    parser.add_argument("-t", "--topic", metavar="NAME", help="the topic of all records")
    parser.add_argument("--topic-column", metavar="COLUMN", help="the topic of each record")
    parser.add_argument("--partition-column", metavar="COLUMN", help="the partition of each; else the key decides")
    add_target_arguments(parser)
    parser.add_argument("--partitions", type=int, metavar="N", help="of topics that are made; only with --to-path")
    parser.add_argument("--compression", choices=CODEC_NAMES, help="of what is written")


def run(spark: Any, options: argparse.Namespace, progress: Progress) -> Summary:
    target = target_options(options)
    if "path" not in target and "kafka.bootstrap.servers" not in target:
        raise OptionError("say where records go: --to-path DIR, or --to-bootstrap-server HOST:PORT")
    if options.partitions is not None:
        if "path" not in target:
            raise OptionError("--partitions is for --to-path; make topics of a broker with minibroker topics --create")
        target["partitions"] = str(options.partitions)
    if options.compression is not None:
        target["codec" if "path" in target else "kafka.compression.type"] = options.compression
    if bool(options.files) == bool(options.generate):  # both, or none
        raise OptionError("say what to write: files, or --generate with a rule, and not both")
    choice = Choice(*(getattr(options, name) for name in Choice._fields))
    if options.generate:
        return load(spark, made_up(spark, options.generate, choice), target, progress=progress)
    told = pairs_of("--read-option", options.read_option)
    rows = opened(spark, options.files, options.format or format_of(options.files), told)
    mode = mode_of(told)
    records = as_records(rows, choice, mode)
    needs_counts = choice.partition_column and "path" in target and options.partitions is None
    counts = partition_counts(rows, choice) if needs_counts else {}
    return load_checked(spark, records, mode, target, progress, counts)


def made_up(spark: Any, rule: str, choice: Choice) -> Any:
    """Return rows by a rule."""
    from pyspark.sql import functions as sql  # pyright: ignore

    if choice.topic is None:
        raise OptionError("--generate needs --topic NAME")
    if any(choice._replace(topic=None)):
        raise OptionError("--generate: what is made up has its columns already; --key and its like are for files")
    return generated(spark, parse_spec(rule)).withColumn("topic", sql.lit(choice.topic))


def load_checked(
    spark: Any, rows: Any, mode: str, target: Mapping[str, str], progress: Progress, counts: Mapping[str, int]
) -> Summary:
    """Write rows that have WRONG, and count those where it says something. counts: see `load`."""
    from pyspark.sql import Observation  # pyright: ignore
    from pyspark.sql import functions as sql  # pyright: ignore

    seen = Observation()
    rows = rows.observe(seen, sql.count(WRONG).alias("count"), sql.min(WRONG).alias("first"))
    rows = (rows.where(sql.col(WRONG).isNull()) if mode == DROP else rows).drop(WRONG)
    done = load(spark, rows, target, counts=counts, progress=progress)
    found = seen.get
    done.figures["dropped" if mode == DROP else "not parsed"] = found["count"]
    if found["count"]:
        what = "were left out" if mode == DROP else "were written without what cannot be read of them"
        done.problems.append(f"{found['count']} records {what}, as this one: {found['first']}")
    return done


def load(
    spark: Any,
    rows: Any,
    target: Mapping[str, str],
    *,
    job: str = "import",
    counts: Mapping[str, int] | None = None,
    progress: Progress = QUIET,
    clock: Clock | None = None,
) -> Summary:
    """Write rows with the columns that the data source takes; `target` are its options.

    counts: how many partitions topics get that are made in a directory, where it is not the same number for all.
    """
    clock = clock or LoopClock()
    began_ms = clock.steady_ms()
    if "path" in target:
        figures, tables, notes = _into_directory(rows, target, counts or {}, progress)
    else:
        figures, tables, notes = _to_brokers(rows, target, progress)
    seconds = max(clock.steady_ms() - began_ms, 1) / 1000
    figures |= {"seconds": round(seconds, 3), "records per second": round(figures["records"] / seconds)}
    return Summary(job, figures, tables, notes=notes)


_Written = tuple[dict[str, Any], list[Table], list[str]]  # figures, tables, notes


def _into_directory(rows: Any, target: Mapping[str, str], counts: Mapping[str, int], progress: Progress) -> _Written:
    from minibroker.spark.bulk_load.options import parse_load
    from minibroker.spark.load import load_with

    options = parse_load(target, KEPT)
    options.partition_counts = dict(counts)
    done = load_with(rows, options, progress=progress)
    names = ["topic", "partition", "first", "end", "segments", "bytes"]
    loaded = [
        [each.topic, each.partition, each.first_offset, each.end_offset, each.segments, each.size_bytes]
        for each in done.partitions
    ]
    figures = {"target": done.path, "records": done.records, "segments": done.segments, "bytes": done.size_bytes}
    return figures, [Table("partitions", names, loaded)], _of_retention(done.partitions, options)


def _of_retention(loaded: Sequence[LoadedPartition], options: LoadOptions) -> list[str]:
    """Return notes on what a broker will keep of what was loaded, and what it will not."""
    notes = []
    if any(each.is_new for each in loaded) and not options.configs.keys() & KEPT.keys():
        notes.append("topics made here keep their records: retention.ms=-1")
    by_topic = sums_of((each.topic, each.expired, each.segments) for each in loaded)
    notes += [
        f"{topic}: of {segments} loaded segments {expired} are older than its retention.ms: a broker deletes them soon"
        for topic, (expired, segments) in by_topic.items()
        if expired
    ]
    return notes


def _to_brokers(rows: Any, target: Mapping[str, str], progress: Progress) -> _Written:
    from pyspark.sql import Observation  # pyright: ignore
    from pyspark.sql import functions as sql  # pyright: ignore

    from minibroker.spark.source import NAME

    use_source(rows.sparkSession)
    seen = Observation()
    sizes = [sql.coalesce(sql.octet_length(name), sql.lit(0)) for name in ("value", "key") if name in rows.columns]
    counted = rows.observe(seen, sql.count(sql.lit(1)).alias("records"), sql.sum(sum(sizes)).alias("bytes"))
    servers = target["kafka.bootstrap.servers"]
    counted = with_arrays(counted)
    with progress.step(f"writing to {servers}"):
        counted.write.format(NAME).options(**target).mode("append").save()
    found = seen.get
    return (
        {"target": servers, "records": found["records"] or 0, "bytes of keys and values": found["bytes"] or 0},
        [],
        [],
    )

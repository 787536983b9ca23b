"""The options and columns of a write to topics, read and checked before anything is sent.

    parse({"kafka.bootstrap.servers": "localhost:9092", "topic": "orders"}) -> WriteOptions
    check_columns([("key", "binary"), ("value", "string")], options)

Names and rules are those of Spark's Kafka sink: `value` must be there, `topic` as a column or an option, `key`,
`partition` and `headers` may be. What is set with `kafka.` in front is what Kafka's producer can be told.
What must hold: an option that nobody knows is refused; so is a producer setting that cannot be kept. Settings of how a
producer waits and buffers have no meaning here, as rows come in large pieces: they are taken, as Spark takes them.
Spark: unknown options, and columns of no meaning, are passed over. Here such options are refused, and columns whose
names are nearly right.
Not here: sending (task.py). No pyspark: this can be tested without.
"""

from __future__ import annotations

import re

from minibroker.log.compression import CODEC_NAMES, NONE, check_level
from minibroker.spark.option_values import OptionError, by_true_names, flag, one_of, positive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Every option of our own, its default, and what it does. docs/spark-writing.md shows this table.
WRITE_OPTIONS: dict[str, tuple[str, str]] = {
    "kafka.bootstrap.servers": ("", "brokers to write to, as HOST:PORT with commas between them"),
    "topic": ("", "the topic of all rows; it goes before a column `topic`"),
    "includeHeaders": ("true", "whether a column `headers` is written, if there is one"),
    "exactlyOnce": (
        "false",
        "whether a batch or task that is repeated leaves out what is written already",
    ),
    "sinkName": ("", "tells apart several writes with `exactlyOnce` in one foreachBatch function"),
    "groupIdPrefix": ("minibroker-sink", "how the names of the groups begin in which `exactlyOnce` keeps its notes"),
}
GIVEN_BY_SPARK = {"checkpointlocation", "queryname"}  # streams hand on what they were told themselves

ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
BATCH_BYTES = 1 << 20  # brokers take 1,048,588 bytes, if nothing else was set
REQUEST_BYTES = 8 * 1024 * 1024
INT32_MAX = (1 << 31) - 1
LEVELS = ("gzip", "lz4", "zstd")

_SETTINGS = """
    acks batch.size bootstrap.servers buffer.memory client.dns.lookup client.id compression.gzip.level
    compression.lz4.level compression.type compression.zstd.level connections.max.idle.ms delivery.timeout.ms
    enable.idempotence enable.metrics.push interceptor.classes key.serializer linger.ms max.block.ms
    max.in.flight.requests.per.connection max.request.size metadata.max.age.ms metadata.max.idle.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
    security.protocol security.providers send.buffer.bytes socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms transaction.timeout.ms transactional.id
    transaction.two.phase.commit.enable value.serializer
"""
PRODUCER_SETTINGS = frozenset(_SETTINGS.split())
REFUSED_SETTINGS = {
    "key.serializer": "keys are columns of strings or bytes; turn them into bytes in the query",
    "value.serializer": "values are columns of strings or bytes; turn them into bytes in the query",
    "interceptor.classes": "interceptors are code of the JVM, which does not write here",
    "partitioner.class": "partitioners are code of the JVM; a column `partition` says where a row goes",
    "transactional.id": "transactions cannot be written yet; exactlyOnce does without them",
    "transaction.two.phase.commit.enable": "transactions cannot be written yet; exactlyOnce does without them",
}


class WriteOptions:
    """What was asked for."""

    servers: str
    topic: str | None
    include_headers: bool
    exactly_once: bool
    sink_name: str
    group_prefix: str
    acks: int
    idempotent: bool
    codec: int
    level: int | None
    batch_bytes: int  # 1: a record each
    request_bytes: int  # of batches in one request; a single batch may be larger
    record_bytes_max: int | None  # max.request.size, if it was said
    ignore_keys: bool  # of partitioning
    client_id: str
    request_timeout_ms: int
    delivery_timeout_ms: int
    retry_pause_ms: int
    retry_pause_ms_max: int
    retry_count: int
    security: dict[str, str]  # security.protocol, ssl. and sasl., as they were told


def parse(given: Mapping[str, str]) -> WriteOptions:
    """Read the options of a write; raise OptionError for the first that cannot be used."""
    own = {name: value for name, value in given.items() if name.lower() not in GIVEN_BY_SPARK}
    told = by_true_names(
        own, WRITE_OPTIONS, PRODUCER_SETTINGS, lambda name: f"a write has no option {name!r}{_near(name.lower())}"
    )
    found = WriteOptions()
    found.servers = told.get("kafka.bootstrap.servers", "").strip()
    if not found.servers:
        raise OptionError("nowhere to write to: set kafka.bootstrap.servers to HOST:PORT of a broker")
    found.topic = told.get("topic", "").strip() or None
    found.include_headers = flag(told, "includeHeaders", True)
    found.exactly_once = flag(told, "exactlyOnce", False)
    found.sink_name = told.get("sinkName", "").strip()
    if not re.fullmatch(r"[A-Za-z0-9_-]*", found.sink_name, re.ASCII):
        raise OptionError(f"sinkName is {found.sink_name!r}: it can have letters, digits, - and _")
    found.group_prefix = told.get("groupIdPrefix", WRITE_OPTIONS["groupIdPrefix"][0]).strip()
    if not found.group_prefix:
        raise OptionError("groupIdPrefix is empty: names of groups must begin with something")
    settings = {name.removeprefix("kafka."): value for name, value in told.items() if name.startswith("kafka.")}
    for name, advice in REFUSED_SETTINGS.items():
        if name in settings:
            raise OptionError(f"kafka.{name} cannot be set: {advice}")
    _delivery(settings, found)
    _sizes(settings, found)
    found.client_id = settings.get("client.id", "minibroker-spark")
    found.security = {
        name: value for name, value in settings.items() if name.startswith(("security.", "ssl.", "sasl."))
    }
    return found


def _near(lower: str) -> str:
    from difflib import get_close_matches

    settings = {f"kafka.{setting}" for setting in PRODUCER_SETTINGS} - {f"kafka.{name}" for name in REFUSED_SETTINGS}
    candidates = {each.lower(): each for each in (*WRITE_OPTIONS, *settings)}
    if f"kafka.{lower}" in candidates:  # somebody has forgotten the prefix
        return f": did you mean kafka.{lower}?"
    if lower in ("subscribe", "subscribepattern", "assign"):
        return ": that is for reading; did you mean topic?"
    near = get_close_matches(lower, candidates, 1)
    return f": did you mean {candidates[near[0]]}?" if near else "; docs/spark-writing.md has a table of all"


def _delivery(settings: dict[str, str], found: WriteOptions) -> None:
    acks = settings.get("acks", "all").strip().lower()
    if acks not in ACKS:
        raise OptionError(f"kafka.acks is {acks!r}: it can be all, 1 or 0")
    found.acks = ACKS[acks]
    # As with Kafka's producer: idempotence is given up silently for weaker acks, unless it was asked for.
    asked = "enable.idempotence" in settings
    found.idempotent = flag(settings, "enable.idempotence", found.acks == -1, prefix="kafka.")
    if found.idempotent and found.acks != -1:
        raise OptionError(f"kafka.enable.idempotence needs kafka.acks all, which is {acks}: set one of them otherwise")
    if found.exactly_once and not found.idempotent:
        name = "kafka.enable.idempotence false" if asked else f"kafka.acks {acks}"
        raise OptionError(f"{name} and exactlyOnce exclude each other: set exactlyOnce to false if rows may come twice")
    found.request_timeout_ms = _number(settings, "request.timeout.ms", 30_000, 1)
    found.delivery_timeout_ms = _number(settings, "delivery.timeout.ms", 120_000, 0)
    found.retry_pause_ms = _number(settings, "retry.backoff.ms", 100, 0)
    found.retry_pause_ms_max = _number(settings, "retry.backoff.max.ms", 1000, 0)
    found.retry_count = _number(settings, "retries", INT32_MAX, 0)
    found.ignore_keys = flag(settings, "partitioner.ignore.keys", False, prefix="kafka.")


def _sizes(settings: dict[str, str], found: WriteOptions) -> None:
    name = one_of("kafka.compression.type", settings.get("compression.type", "none"), tuple(CODEC_NAMES))
    found.codec, found.level = CODEC_NAMES.index(name), None
    if name in LEVELS and f"compression.{name}.level" in settings:
        found.level = _number(settings, f"compression.{name}.level", 0, -INT32_MAX)
        try:
            check_level(found.codec, found.level)
        except ValueError as error:
            raise OptionError(f"kafka.compression.{name}.level is {found.level}: {error}") from None
    if found.codec == NONE:
        found.level = None
    found.batch_bytes = min(max(1, _number(settings, "batch.size", BATCH_BYTES, 0)), 1 << 30)
    found.record_bytes_max = None
    found.request_bytes = REQUEST_BYTES
    if "max.request.size" in settings:
        found.record_bytes_max = found.request_bytes = positive("kafka.max.request.size", settings["max.request.size"])


def _number(settings: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = settings.get(name, "").strip()
    if not text:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 12 and least <= int(text) <= INT32_MAX):
        raise OptionError(f"kafka.{name} is {text!r}: it must be a number from {least} to {INT32_MAX}")
    return int(text)


# Columns

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
COLUMNS = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp", "bigint"),  # the latter is ms since 1970
    "headers": (HEADERS_TYPE,),
}


OF_READING = ("offset", "timestampType")  # columns of what was read from topics; a record gets these anew


def check_columns(fields: Iterable[tuple[str, str]], options: WriteOptions) -> None:
    """Raise OptionError unless rows of these columns, as names and types in Spark's words, can be written."""
    types = dict(fields)
    if "value" not in types:
        raise OptionError(f"there is no column value, which every record must have; there are {', '.join(types)}")
    if options.topic is None and "topic" not in types:
        raise OptionError("no topic: set the option topic, or let a column topic say it for each row")
    for name, kind in types.items():
        if name not in COLUMNS:
            if name not in OF_READING:
                _check_name(name, types)
        elif not (name == "topic" and options.topic is not None):
            # Strings may have a collation, or a greatest length.
            plain = "string" if kind.startswith(("string", "varchar(", "char(")) else kind
            if plain not in COLUMNS[name]:
                raise OptionError(f"column {name} is {kind}: it must be {' or '.join(COLUMNS[name])}; cast it")


def _check_name(name: str, types: Mapping[str, str]) -> None:
    """A column that means nothing is not written, as with Spark's sink; one that nearly does was meant to be."""
    from difflib import get_close_matches

    missing = [each for each in COLUMNS if each not in types]
    near = get_close_matches(name.lower(), missing, 1, 0.8)
    if near:
        raise OptionError(f"column {name} would not be written: did you mean {near[0]}? Rename it, or drop it")

"""The options of a write to topics, read and checked before anything is sent.

    parse({"kafka.bootstrap.servers": "localhost:9092", "topic": "orders"}) -> WriteOptions

Names are those of Spark's Kafka sink. What is set with `kafka.` in front is what Kafka's producer can be told.
What must hold: an option that nobody knows is refused; so is a producer setting that cannot be kept. Settings of how a
producer waits and buffers have no meaning here, as rows come in large pieces: they are taken, as Spark takes them.
Spark: unknown options are passed over, here they are refused.
Not here: columns (columns.py), sending (sender.py). No pyspark: this can be tested without.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from os.path import abspath

from minibroker.log.compression import CODEC_NAMES, check_level
from minibroker.spark.option_table import KAFKA, OptionTable
from minibroker.spark.option_values import INT32_MAX, OptionError, flag, number
from minibroker.spark.options import TOPIC_OPTIONS

GIVEN_BY_SPARK = {"checkpointlocation", "queryname"}  # streams hand on what they were told themselves
ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
BATCH_BYTES = 1 << 20  # brokers take 1,048,588 bytes, if nothing else was set
REQUEST_BYTES = 8 * 1024 * 1024


def _acks(name: str, text: str) -> int:
    if text.strip().lower() not in ACKS:
        raise OptionError(f"{name} is {text.strip().lower()!r}: it can be all, 1 or 0")
    return ACKS[text.strip().lower()]


# docs/spark-writing.md shows the rows with a sentence. `settings` is what Kafka's producer can be told besides.
WRITE_OPTIONS = OptionTable(
    f"""
    kafka.bootstrap.servers | servers: word | | brokers to write to, as HOST:PORT with commas between them
    topic | topic: word | | the topic of all rows; it goes before a column `topic`
    includeHeaders | include_headers: flag | true | whether a column `headers` is written, if there is one
    exactlyOnce | exactly_once: flag |
    | whether all rows of a batch become visible once, in a transaction; true for streams, false for other writes
    sinkName | sink_name: word | | tells apart several writes with `exactlyOnce` in one foreachBatch function
    txnAppId | app_id: word |
    | with `txnVersion`, for a function that names its writes itself: who writes; nobody else may have the name
    txnVersion | app_version: version | | which write of that one it is, rising; one that is repeated is there once
    spoolLocation | spool_location: word |
    | a folder that driver and workers reach, for the rows of large batches; a stream has its checkpoint for it
    transactionalIdPrefix | id_prefix: word | minibroker-spark
    | how transactional ids begin, and the groups with the numbers of batches
    kafka.acks | acks: acks | all |
    kafka.batch.size | batch_bytes: number | {BATCH_BYTES} |
    kafka.client.id | client_id: text | minibroker-spark |
    kafka.compression.gzip.level | | |
    kafka.compression.lz4.level | | |
    kafka.compression.type | compression: one of {", ".join(CODEC_NAMES)} | none |
    kafka.compression.zstd.level | | |
    kafka.delivery.timeout.ms | delivery_timeout_ms: number | 120000 |
    kafka.enable.idempotence | | |
    kafka.max.request.size | record_bytes_max: positive | |
    kafka.partitioner.ignore.keys | ignore_keys: flag | false |
    kafka.request.timeout.ms | request_timeout_ms: number from 1 | 30000 |
    kafka.retries | retry_count: number | {INT32_MAX} |
    kafka.retry.backoff.max.ms | retry_pause_ms_max: number | 1000 |
    kafka.retry.backoff.ms | retry_pause_ms: number | 100 |
    kafka.transaction.timeout.ms | transaction_timeout_ms: positive | |
    """,
    readers={"acks": _acks, "version": number},
    settings="""
        buffer.memory client.dns.lookup connections.max.idle.ms enable.metrics.push interceptor.classes key.serializer
        linger.ms max.block.ms max.in.flight.requests.per.connection metadata.max.age.ms metadata.max.idle.ms
        metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
        metrics.recording.level metrics.sample.window.ms partitioner.adaptive.partitioning.enable
        partitioner.availability.timeout.ms partitioner.class receive.buffer.bytes reconnect.backoff.max.ms
        reconnect.backoff.ms security.protocol security.providers send.buffer.bytes
        socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms transactional.id
        transaction.two.phase.commit.enable value.serializer
    """,
    refused={
        "key.serializer": "keys are columns of strings or bytes; turn them into bytes in the query",
        "value.serializer": "values are columns of strings or bytes; turn them into bytes in the query",
        "interceptor.classes": "interceptors are code of the JVM, which does not write here",
        "partitioner.class": "partitioners are code of the JVM; a column `partition` says where a row goes",
        "transactional.id": "exactlyOnce writes transactions, whose ids begin with transactionalIdPrefix: one for each "
        "query, so that no other can fence it",
        "transaction.two.phase.commit.enable": "a transaction is begun and ended by the driver alone",
    },
    refusal="a write has no option {!r}",
    page="docs/spark-writing.md",
)


class WriteOptions:
    """What was asked for."""

    servers: str
    topic: str | None  # None: a column says it for each row
    include_headers: bool
    exactly_once: bool
    sink_name: str
    id_prefix: str
    app_id: str  # empty: the query says who writes, and which batch
    app_version: int | None
    spool_location: str  # empty: none was told
    checkpoint: str  # of the query; empty: nobody knows it
    transaction_timeout_ms: int | None  # None: by the size of the write
    acks: int
    idempotent: bool
    compression: str  # the codec by its name
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


def parse(given: Mapping[str, str], *, streaming: bool = False) -> WriteOptions:
    """Read the options of a write; raise OptionError for the first that cannot be used."""
    own = {name: value for name, value in given.items() if name.lower() not in GIVEN_BY_SPARK}
    for name in own:
        if name.lower() in map(str.lower, TOPIC_OPTIONS):
            raise OptionError(f"a write has no option {name!r}: that is for reading; did you mean topic?")
    told = WRITE_OPTIONS.by_true_names(own)
    found = WriteOptions()
    vars(found).update(WRITE_OPTIONS.values(told))
    if not found.servers:
        raise OptionError("nowhere to write to: set kafka.bootstrap.servers to HOST:PORT of a broker")
    if "exactlyOnce" not in told:
        found.exactly_once = streaming
    if not re.fullmatch(r"[A-Za-z0-9_-]*", found.sink_name, re.ASCII):
        raise OptionError(f"sinkName is {found.sink_name!r}: it can have letters, digits, - and _")
    _check_app(found, streaming)
    if not found.id_prefix:
        raise OptionError("transactionalIdPrefix is empty: transactional ids must begin with something")
    found.topic = found.topic or None
    of_spark = {name.lower(): value for name, value in given.items()}
    found.spool_location = _absolute(found.spool_location)
    found.checkpoint = _absolute(of_spark.get("checkpointlocation", ""))
    _check_idempotence(told, found)
    found.codec = CODEC_NAMES.index(found.compression)
    level = f"kafka.compression.{found.compression}.level"
    found.level = level_of(level, told.get(level, ""), found.compression)
    found.batch_bytes = min(max(1, found.batch_bytes), 1 << 30)
    found.request_bytes = found.record_bytes_max or REQUEST_BYTES
    if found.transaction_timeout_ms is not None:
        found.transaction_timeout_ms = min(found.transaction_timeout_ms, INT32_MAX)  # brokers allow less
    found.security = {
        name.removeprefix(KAFKA): value
        for name, value in told.items()
        if name.startswith(("kafka.security.", "kafka.ssl.", "kafka.sasl."))
    }
    return found


def _absolute(location: str) -> str:
    """As Spark does with a path that begins nowhere; workers may begin elsewhere."""
    return abspath(location) if location and ":" not in location else location


def _check_app(found: WriteOptions, streaming: bool) -> None:
    if (found.app_id == "") is not (found.app_version is None):
        raise OptionError("txnAppId and txnVersion go together: set both of them, or none")
    if found.app_id and not found.exactly_once:
        raise OptionError("txnAppId names writes with exactlyOnce: set that to true, too")
    if found.app_id and streaming:
        raise OptionError(
            "txnAppId is for writes in foreachBatch and in jobs: a stream has its id and numbers from Spark"
        )
    if not re.fullmatch(r"[A-Za-z0-9._-]*", found.app_id, re.ASCII):
        raise OptionError(f"txnAppId is {found.app_id!r}: it can have letters, digits, ., - and _")


def _check_idempotence(told: Mapping[str, str], found: WriteOptions) -> None:
    """As with Kafka's producer: idempotence is given up silently for weaker acks, unless it was asked for."""
    name = "kafka.enable.idempotence"
    acks = told.get("kafka.acks", "all").strip().lower()
    found.idempotent = flag(name, told[name]) if name in told else found.acks == -1
    if found.idempotent and found.acks != -1:
        raise OptionError(f"{name} needs kafka.acks all, which is {acks}: set one of them otherwise")
    if found.exactly_once and not found.idempotent:
        reason = f"{name} false" if name in told else f"kafka.acks {acks}"
        raise OptionError(
            f"{reason} and exactlyOnce exclude each other: set exactlyOnce to false if rows may come twice"
        )


def level_of(name: str, text: str, codec: str) -> int | None:
    """Return the level of a codec, which has this text; Kafka's default if None."""
    if not text.strip():
        return None
    level = number(name, text, -INT32_MAX)
    try:
        return check_level(CODEC_NAMES.index(codec), level)
    except ValueError as error:
        raise OptionError(f"{name} is {text}: {error}") from None

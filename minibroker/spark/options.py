"""The options of a query, read and checked before anything else happens: those of Spark's Kafka source, and a few more.

    parse({"path": "data", "subscribe": "orders", "startingOffsets": "earliest"}) -> Options

Names, values, defaults and what may not stand together are those of Spark's source, so a query moves over by one word;
what it says of a mistake is more: which option, what was found, what to write instead.
What must hold: an option that nobody knows is refused, never ignored; those that have no meaning for a query in hand
(polling while files are read, triggers in a batch) are taken, as Spark takes them.
Spark: `failOnDataLoss`, `includeHeaders` and numbers are read when a query runs; here all of it when it is planned.
Not here: what there is to read (planning.py in files/ and brokers/). No pyspark: this can be tested without.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from minibroker.spark.option_table import KAFKA, OptionTable
from minibroker.spark.option_values import (
    EARLIEST,
    INT64_MAX,
    LATEST,
    Limit,
    OptionError,
    TopicPartition,
    names,
    numbers_of,
    partitions_of,
    timestamp,
    words,
)

FAIL, SKIP, QUARANTINE, BATCHES = ("fail", "skip", "quarantine", "batches")
LOG_END = "logEnd"
TO_LATEST = "latest"
COMMITTED = "read_committed"
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
TOPIC_OPTIONS = ("subscribe", "subscribePattern", "assign")

# docs/spark.md shows this table. `settings` is what a consumer can be told besides.
OPTIONS = OptionTable(
    """
    path | paths: words | | log directories to read without a broker, with commas between them
    kafka.bootstrap.servers | servers: word | | brokers to ask, as HOST:PORT with commas between them
    subscribe | | | topics, with commas between them
    subscribePattern | |
    | a regular expression that is found anywhere in the name of a topic, .* in all; ^ and $ are its ends
    assign | | | partitions, as {"orders":[0,1]}
    startingOffsets | | earliest; of a stream latest
    | earliest, latest, or {"orders":{"0":23,"1":-2}}, where -1 is the latest and -2 the earliest
    startingTimestamp | | | ms since 1970: from the first record that is not older
    startingOffsetsByTimestamp | | | the same for each partition, as {"orders":{"0":1700000000000}}
    startingOffsetsByTimestampStrategy | no_match: one of error, latest | error
    | error, or latest: where to begin if no record is that young
    endingOffsets | | latest | latest, or {"orders":{"0":50,"1":-1}}; the offset itself is not read
    endingTimestamp | | | ms since 1970: up to the first record that is not older
    endingOffsetsByTimestamp | | | the same for each partition
    kafka.isolation.level | isolation: one of read_uncommitted, read_committed | read_uncommitted
    | read_committed leaves out aborted and open transactions
    includeHeaders | include_headers: flag | false | whether there is a column with the headers
    failOnDataLoss | fail_on_data_loss: flag | true
    | whether records that should be there and are not end the query
    minPartitions | partitions_min: positive | | how many tasks there are at least, about
    maxRecordsPerPartition | records_max: positive | | how many offsets a task reads at most
    maxBytesPerPartition | bytes_max: positive | 134217728
    | how many bytes of segments a task reads at most, about; only with `path`
    mode | mode: one of fail, skip, quarantine, batches | fail
    | what a broken batch does: fail, skip (it is counted and told); quarantine: rows are the broken; batches: all
    endOfLog | end_of_log: one of checkpoint, logEnd | checkpoint
    | checkpoint: a log ends at its high watermark; logEnd: behind its last whole batch; only with `path`
    maxOffsetsPerTrigger | trigger_offsets_max: positive | | how many offsets a micro-batch reads at most
    minOffsetsPerTrigger | trigger_offsets_min: positive | | how many offsets a micro-batch waits for
    maxTriggerDelay | trigger_delay_ms: duration | 15m | how long it waits for them
    kafkaConsumer.pollTimeoutMs | poll_timeout_ms: positive | 120000 | how long to wait for records; not with `path`
    kafka.default.api.timeout.ms | api_timeout_ms: number from 1 | 60000
    | how long to ask for offsets until brokers answer; not with `path`
    fetchOffset.numRetries | retries: positive | 3 | how often to do so again; not with `path`
    fetchOffset.retryIntervalMs | retry_pause_ms: positive | 1000 | how long to wait in between; not with `path`
    commitOffsets | commits: flag | false
    | whether a stream commits its offsets to a group, for others to see; not with `path`
    groupIdPrefix | group_prefix: text | spark-kafka-source
    | how the name of that group begins, without kafka.group.id
    kafka.fetch.max.wait.ms | fetch_wait_ms: number | 500 |
    kafka.max.partition.fetch.bytes | fetch_bytes: number | 8388608 |
    kafka.request.timeout.ms | call_timeout_ms: number from 1 | 30000 |
    """,
    settings="""
        allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset
        check.crcs client.dns.lookup client.id client.rack connections.max.idle.ms
        enable.auto.commit enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.min.bytes
        group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes
        key.deserializer max.poll.interval.ms max.poll.records metadata.max.age.ms
        metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
        metrics.num.samples metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
        receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms
        retry.backoff.ms security.protocol security.providers send.buffer.bytes session.timeout.ms
        socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms value.deserializer
    """,
    refused={
        "auto.offset.reset": "say where to begin with startingOffsets, as earliest or latest",
        "key.deserializer": "keys are columns of bytes; turn them into something else in the query",
        "value.deserializer": "values are columns of bytes; turn them into something else in the query",
        "enable.auto.commit": "a query keeps its own offsets",
        "interceptor.classes": "interceptors are code of the JVM, which does not read here",
    },
)


class Options:
    """What was asked for."""

    paths: list[str]
    servers: str  # empty: files are read
    topics: list[str] | None
    pattern: re.Pattern[str] | None
    assigned: list[TopicPartition] | None
    starting: Limit
    ending: Limit
    no_match: str
    isolation: str
    include_headers: bool
    fail_on_data_loss: bool
    partitions_min: int | None
    records_max: int | None
    bytes_max: int
    mode: str
    end_of_log: str
    trigger_offsets_max: int | None
    trigger_offsets_min: int | None
    trigger_delay_ms: int
    poll_timeout_ms: int
    api_timeout_ms: int  # of asking for offsets
    retries: int  # of doing so for that long
    retry_pause_ms: int
    commits: bool  # whether a stream's offsets are committed to a group
    group_prefix: str
    fetch_wait_ms: int
    fetch_bytes: int
    call_timeout_ms: int
    kafka: dict[str, str]  # the rest of what consumers are told, without `kafka.`
    is_stream: bool
    must_match: bool = True  # whether a pattern that no topic matches is an error; Spark takes it for an empty table
    columns: list[str] | None = None  # the schema that a query gives: None is all there are

    @property
    def is_path(self) -> bool:
        return bool(self.paths)

    @property
    def read_committed(self) -> bool:
        return self.isolation == COMMITTED

    def wants(self, topic: str, partition: int) -> bool:
        """Return whether a partition that is there belongs to the query."""
        if self.assigned is not None:
            return (topic, partition) in self.assigned
        if self.topics is not None:
            return topic in self.topics
        # Spark looks for the pattern anywhere in a name, and leaves Kafka's own topics out.
        return self.pattern is not None and topic not in INTERNAL_TOPICS and bool(self.pattern.search(topic))


def parse(given: Mapping[str, str], *, streaming: bool = False) -> Options:
    """Read the options of a query; raise OptionError for the first that cannot be used."""
    told = OPTIONS.by_true_names(given)
    found = Options()
    vars(found).update(OPTIONS.values(told))
    found.is_stream = streaming
    if found.paths and found.servers:
        raise OptionError("path and kafka.bootstrap.servers are both set: say one, files or brokers")
    if not found.paths and not found.servers:
        raise OptionError(
            "nothing to read from: set kafka.bootstrap.servers to HOST:PORT of a broker, or path to a log directory"
        )
    _which(told, found)
    found.kafka = {
        name.removeprefix(KAFKA): value
        for name, value in told.items()
        if name.startswith(KAFKA) and name not in OPTIONS.rows
    }
    most, least = found.trigger_offsets_max, found.trigger_offsets_min
    if most is not None and least is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger ({least}) is higher than maxOffsetsPerTrigger ({most})")
    found.starting = _limit(told, "starting", LATEST if streaming else EARLIEST)
    if streaming:
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            if name in told:
                raise OptionError(f"{name}: a stream has no end; read a batch, or stop the query when it is there")
        found.ending = Limit("endingOffsets", offset=LATEST)
    else:
        found.ending = _limit(told, "ending", LATEST)
        _check_batch(found.starting, found.ending)
    return found


def pinned(given: Mapping[str, str], ranges: Iterable[tuple[str, int, int, int]]) -> dict[str, str]:
    """Return the options of a query of these topics, partitions, first and end offsets; what else is given stays."""
    told = {
        name: value
        for name, value in OPTIONS.by_true_names(given).items()
        if name not in TOPIC_OPTIONS and not name.startswith(("starting", "ending"))
    }
    first: dict[str, dict[int, int]] = {}
    end: dict[str, dict[int, int]] = {}
    for topic, partition, first_offset, end_offset in ranges:
        first.setdefault(topic, {})[partition] = first_offset
        end.setdefault(topic, {})[partition] = end_offset
    told["assign"] = json.dumps({topic: list(partitions) for topic, partitions in first.items()})
    return {**told, "startingOffsets": json.dumps(first), "endingOffsets": json.dumps(end)}


def _which(told: Mapping[str, str], found: Options) -> None:
    """Read which topics or partitions are meant: one option says it."""
    found.topics = found.pattern = found.assigned = None
    said = [name for name in TOPIC_OPTIONS if name in told]
    if len(said) != 1:
        problem = f"{' and '.join(said)} are both set" if said else "no topic is named"
        raise OptionError(f"{problem}: set one of {', '.join(TOPIC_OPTIONS)}")
    (name,) = said
    value = told[name].strip()
    if name == "assign":
        found.assigned = partitions_of(value)
    elif name == "subscribe":
        found.topics = list(dict.fromkeys(words(name, value)))
        if not found.topics:
            raise OptionError(f"subscribe names no topic: {told[name]!r}")
    else:
        if not value:
            raise OptionError("subscribePattern is empty: .* stands for all topics")
        try:
            found.pattern = re.compile(value)
        except re.error as error:
            raise OptionError(f"subscribePattern {value!r} is no regular expression: {error}") from None


def _limit(told: Mapping[str, str], which: str, default: int) -> Limit:
    """Read where a query begins or ends; as in Spark one time for all goes before times, and these before offsets."""
    name = f"{which}Timestamp"
    if name in told:
        return Limit(name, timestamp=timestamp(name, told[name]))
    name = f"{which}OffsetsByTimestamp"
    if name in told:
        limit = Limit(name)
        limit.timestamps = numbers_of(name, told[name], "1700000000000", least=-INT64_MAX)
        return limit
    name = f"{which}Offsets"
    words = {"earliest": EARLIEST, "latest": LATEST}
    value = told.get(name, "").strip()
    if not value:
        return Limit(name, offset=default)
    if value.lower() in words:
        return Limit(name, offset=words[value.lower()])
    if not value.startswith("{"):
        raise OptionError(f'{name} is {value!r}: it can be earliest, latest, or JSON as {{"orders":{{"0":23,"1":-2}}}}')
    limit = Limit(name)
    limit.offsets = numbers_of(name, value, "23", least=EARLIEST)
    return limit


def _check_batch(starting: Limit, ending: Limit) -> None:
    """Raise for what a batch cannot begin or end with."""
    for limit, wrong, word in ((starting, LATEST, "latest"), (ending, EARLIEST, "earliest")):
        of_one = next((key for key, offset in (limit.offsets or {}).items() if offset == wrong), None)
        if limit.offset == wrong or of_one:
            where = f" for {of_one[0]}-{of_one[1]}" if of_one else ""
            other = "before the end" if word == "latest" else "behind the beginning"
            raise OptionError(f"{limit.name} is {word}{where}: a batch would hold nothing; say something {other}")
    for of_start, of_end in ((starting.offsets, ending.offsets), (starting.timestamps, ending.timestamps)):
        if of_start is None or of_end is None:
            continue
        if of_start.keys() != of_end.keys():
            differing = names(sorted(of_start.keys() ^ of_end.keys()))
            raise OptionError(f"{starting.name} and {ending.name} name different partitions: {differing}")
        for key, start in of_start.items():
            if start > of_end[key] >= 0:
                topic, partition = key
                raise OptionError(f"{topic}-{partition} would begin at {start} and end before it, at {of_end[key]}")

"""The options of a query, read and checked before anything else happens: those of Spark's Kafka source, and a few more.

    parse({"path": "data", "subscribe": "orders", "startingOffsets": "earliest"}) -> Options

Names, values, defaults and what may not stand together are those of Spark's source, so a query moves over by one word;
what it says of a mistake is more: which option, what was found, what to write instead.
What must hold: an option that nobody knows is refused, never ignored; those that have no meaning for a query in hand
(polling while files are read, triggers in a batch) are taken, as Spark takes them.
Spark: `failOnDataLoss`, `includeHeaders` and numbers are read when a query runs; here all of it when it is planned.
Not here: what there is to read (planning.py in path/ and wire/). No pyspark: this can be tested without.
"""

from __future__ import annotations

import re

from minibroker.spark.option_values import (
    EARLIEST,
    INT64_MAX,
    LATEST,
    Limit,
    OptionError,
    by_true_names,
    duration_ms,
    flag,
    names,
    numbers_of,
    one_of,
    partitions_of,
    positive,
    timestamp,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from minibroker.spark.option_values import TopicPartition

FAIL, SKIP, QUARANTINE = MODES = ("fail", "skip", "quarantine")
CHECKPOINT, LOG_END = END_OF_LOG = ("checkpoint", "logEnd")
ERROR, TO_LATEST = NO_MATCH = ("error", "latest")
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")

# Every option, its default, and what it does. docs/spark.md shows this table.
OPTIONS: dict[str, tuple[str, str]] = {
    "path": ("", "log directories to read without a broker, with commas between them"),
    "kafka.bootstrap.servers": ("", "brokers to ask, as HOST:PORT with commas between them"),
    "subscribe": ("", "topics, with commas between them"),
    "subscribePattern": (
        "",
        "a regular expression that is found anywhere in the name of a topic; ^ and $ are its ends",
    ),
    "assign": ("", 'partitions, as {"orders":[0,1]}'),
    "startingOffsets": ("earliest; of a stream latest", 'earliest, latest, or {"orders":{"0":23,"1":-2}}'),
    "startingTimestamp": ("", "ms since 1970: from the first record that is not older"),
    "startingOffsetsByTimestamp": ("", 'the same for each partition, as {"orders":{"0":1700000000000}}'),
    "startingOffsetsByTimestampStrategy": ("error", "error, or latest: where to begin if no record is that young"),
    "endingOffsets": ("latest", 'latest, or {"orders":{"0":50,"1":-1}}; the offset itself is not read'),
    "endingTimestamp": ("", "ms since 1970: up to the first record that is not older"),
    "endingOffsetsByTimestamp": ("", "the same for each partition"),
    "kafka.isolation.level": ("read_uncommitted", "read_committed leaves out aborted and open transactions"),
    "includeHeaders": ("false", "whether there is a column with the headers"),
    "failOnDataLoss": ("true", "whether records that should be there and are not end the query"),
    "minPartitions": ("", "how many tasks there are at least, about"),
    "maxRecordsPerPartition": ("", "how many offsets a task reads at most"),
    "maxBytesPerPartition": ("134217728", "how many bytes of segments a task reads at most, about; only with `path`"),
    "mode": (
        "fail",
        "what a broken batch does: fail, skip (it is counted and told), or quarantine: rows are the broken",
    ),
    "endOfLog": (
        "checkpoint",
        "checkpoint: a log ends at its high watermark; logEnd: behind its last whole batch; only with `path`",
    ),
    "maxOffsetsPerTrigger": ("", "how many offsets a micro-batch reads at most"),
    "minOffsetsPerTrigger": ("", "how many offsets a micro-batch waits for"),
    "maxTriggerDelay": ("15m", "how long it waits for them"),
    "kafkaConsumer.pollTimeoutMs": ("120000", "how long to wait for records; not with `path`"),
    "fetchOffset.numRetries": ("3", "how often to ask again for offsets; not with `path`"),
    "fetchOffset.retryIntervalMs": ("1000", "how long to wait in between; not with `path`"),
    "commitOffsets": ("false", "whether a stream commits its offsets to a group, for others to see; not with `path`"),
    "groupIdPrefix": ("spark-kafka-source", "how the name of that group begins, without kafka.group.id"),
}
POLL_TIMEOUT_MS, RETRIES, RETRY_PAUSE_MS = 120_000, 3, 1000
TOPIC_OPTIONS = ("subscribe", "subscribePattern", "assign")

# What a consumer can be told with `kafka.` in front. ssl. and sasl. have many more.
_SETTINGS = """
    allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset bootstrap.servers
    check.crcs client.dns.lookup client.id client.rack connections.max.idle.ms default.api.timeout.ms
    enable.auto.commit enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes
    group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes
    isolation.level key.deserializer max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
    receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms
    retry.backoff.ms security.protocol security.providers send.buffer.bytes session.timeout.ms
    socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms value.deserializer
"""
CONSUMER_SETTINGS = frozenset(_SETTINGS.split())
REFUSED_SETTINGS = {
    "auto.offset.reset": "say where to begin with startingOffsets, as earliest or latest",
    "key.deserializer": "keys are columns of bytes; turn them into something else in the query",
    "value.deserializer": "values are columns of bytes; turn them into something else in the query",
    "enable.auto.commit": "a query keeps its own offsets",
    "interceptor.classes": "interceptors are code of the JVM, which does not read here",
}


class Options:
    """What was asked for."""

    paths: list[str]
    servers: str
    topics: list[str] | None
    pattern: re.Pattern[str] | None
    assigned: list[TopicPartition] | None
    starting: Limit
    ending: Limit
    no_match: str
    read_committed: bool
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
    retries: int  # of asking for offsets
    retry_pause_ms: int
    commits: bool  # whether a stream's offsets are committed to a group
    group_prefix: str
    kafka: dict[str, str]  # the rest of what consumers are told, without `kafka.`
    must_match: bool = True  # whether a pattern that no topic matches is an error; Spark takes it for an empty table
    columns: list[str] | None = None  # the schema that a query gives: None is all there are

    @property
    def is_path(self) -> bool:
        return bool(self.paths)

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
    told = by_true_names(given, OPTIONS, CONSUMER_SETTINGS, lambda name: f"there is no option {name!r}{_near(name)}")
    found = Options()
    _where(told, found)
    _which(told, found)
    found.kafka = {name[6:]: value for name, value in told.items() if name.startswith("kafka.")}
    for name, advice in REFUSED_SETTINGS.items():
        if name in found.kafka:
            raise OptionError(f"kafka.{name} cannot be set: {advice}")
    isolation = found.kafka.pop("isolation.level", ISOLATION_LEVELS[0])
    found.read_committed = one_of("kafka.isolation.level", isolation, ISOLATION_LEVELS) == "read_committed"
    found.include_headers = flag(told, "includeHeaders", False)
    found.fail_on_data_loss = flag(told, "failOnDataLoss", True)
    found.no_match = _choice(told, "startingOffsetsByTimestampStrategy", NO_MATCH)
    found.mode = _choice(told, "mode", MODES)
    found.end_of_log = _choice(told, "endOfLog", END_OF_LOG)
    found.partitions_min = _positive(told, "minPartitions")
    found.records_max = _positive(told, "maxRecordsPerPartition")
    found.bytes_max = _positive(told, "maxBytesPerPartition") or int(OPTIONS["maxBytesPerPartition"][0])
    found.trigger_offsets_max = _positive(told, "maxOffsetsPerTrigger")
    found.trigger_offsets_min = _positive(told, "minOffsetsPerTrigger")
    found.trigger_delay_ms = duration_ms("maxTriggerDelay", told.get("maxTriggerDelay", OPTIONS["maxTriggerDelay"][0]))
    found.poll_timeout_ms = _positive(told, "kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_MS
    found.retries = _positive(told, "fetchOffset.numRetries") or RETRIES
    found.retry_pause_ms = _positive(told, "fetchOffset.retryIntervalMs") or RETRY_PAUSE_MS
    found.commits = flag(told, "commitOffsets", False)
    found.group_prefix = told.get("groupIdPrefix", OPTIONS["groupIdPrefix"][0])
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


def _near(name: str) -> str:
    from difflib import get_close_matches

    candidates = {each.lower(): each for each in (*OPTIONS, *(f"kafka.{setting}" for setting in CONSUMER_SETTINGS))}
    # Somebody may have forgotten the prefix.
    if f"kafka.{name.lower()}" in candidates:
        return f": did you mean kafka.{name.lower()}?"
    near = get_close_matches(name.lower(), candidates, 1)
    return f": did you mean {candidates[near[0]]}?" if near else "; docs/spark.md has a table of all"


def _where(told: dict[str, str], found: Options) -> None:
    found.paths = [path.strip() for path in told.get("path", "").split(",") if path.strip()]
    found.servers = told.pop("kafka.bootstrap.servers", "").strip()
    if found.paths and found.servers:
        raise OptionError("path and kafka.bootstrap.servers are both set: say one, files or brokers")
    if not found.paths and not found.servers:
        raise OptionError(
            "nothing to read from: set kafka.bootstrap.servers to HOST:PORT of a broker, or path to a log directory"
        )


def _which(told: dict[str, str], found: Options) -> None:
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
        found.topics = list(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
        if not found.topics:
            raise OptionError(f"subscribe names no topic: {told[name]!r}")
    else:
        if not value:
            raise OptionError("subscribePattern is empty: .* stands for all topics")
        try:
            found.pattern = re.compile(value)
        except re.error as error:
            raise OptionError(f"subscribePattern {value!r} is no regular expression: {error}") from None


# Values


def _choice(told: dict[str, str], name: str, allowed: tuple[str, ...]) -> str:
    return one_of(name, told.get(name, OPTIONS[name][0]), allowed)


def _positive(told: dict[str, str], name: str) -> int | None:
    return positive(name, told[name]) if name in told else None


def _limit(told: dict[str, str], which: str, default: int) -> Limit:
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

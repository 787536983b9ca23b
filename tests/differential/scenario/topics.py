"""Topics: made well and badly, given more partitions, deleted by name and by id."""

from __future__ import annotations

from minibroker.protocol.messages.create_partitions import CreatePartitionsRequest
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest
from tests.differential.play import Play
from tests.differential.scenario.build import (
    BAD_PARTITIONS,
    NO_ID,
    UNKNOWN_ID,
    Assignment,
    Config,
    NewTopic,
    create_request,
    new_topic,
)

More = CreatePartitionsRequest.CreatePartitionsTopic
MoreAssignment = More.CreatePartitionsAssignment
Doomed = DeleteTopicsRequest.DeleteTopicState

# What the other subjects work with.
TOPICS = [
    new_topic("plain"),
    new_topic("two", 2),
    new_topic("formats", 1, retention_ms="-1"),
    new_topic("to-gzip", compression_type="gzip"),
    new_topic("to-zstd", compression_type="zstd"),
    new_topic("to-none", compression_type="uncompressed"),
    new_topic("append-time", message_timestamp_type="LogAppendTime"),
    new_topic("compacted", cleanup_policy="compact"),
    new_topic("small", max_message_bytes="1000"),
    new_topic("empty"),
    new_topic("times", retention_ms="-1"),
    new_topic("limits"),
    new_topic("sequences"),
    new_topic("sessions", 3),
    new_topic("trimmed"),
    new_topic("bad-batches", BAD_PARTITIONS, retention_ms="-1"),
    new_topic("with.dot"),
    new_topic("settings", retention_ms="3600000", cleanup_policy="delete"),
]


def create(play: Play) -> None:
    """Make the topics of all subjects, and some more in every version."""
    play.ask("create the topics of all subjects", create_request(*TOPICS))
    play.settle(*(topic.name for topic in TOPICS))
    for version in play.versions(CreateTopicsRequest):
        name = f"created-v{version}"
        play.ask("validate only", create_request(new_topic(name, 2), validate_only=True), version)
        play.ask("create", create_request(new_topic(name, 2, retention_ms="100000", segment_ms="2000000")), version)
        play.ask("create again", create_request(new_topic(name, 2)), version)
        by_hand = NewTopic(
            name=f"{name}-by-hand",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[Assignment(partition_index=index, broker_ids=[1]) for index in (1, 0)],
            configs=[],
        )
        play.ask("create by assignment", create_request(by_hand), version)
        play.settle(name, f"{name}-by-hand")
        if version >= 4:
            play.ask("create with defaults", create_request(new_topic(f"{name}-defaults", -1, -1)), version)
            play.settle(f"{name}-defaults")


def create_badly(play: Play) -> None:
    """Try to make what cannot be: every reason in every version, alone and together."""
    for version in play.versions(CreateTopicsRequest):
        for step, topic in _bad_topics():
            play.ask(f"create: {step}", create_request(topic), version)
        mixed = [topic for _, topic in _bad_topics()]
        play.ask("create: all mistakes in one request", create_request(*mixed, validate_only=True), version)
        twice = [new_topic("twice"), new_topic("twice", 2), new_topic("once")]
        play.ask("create: a name twice", create_request(*twice, validate_only=True), version)
        play.ask("create: nothing", create_request(), version)


def _bad_topics() -> list[tuple[str, NewTopic]]:
    def assigned(*lists: tuple[int, list[int]], partitions: int = -1, replication: int = -1) -> NewTopic:
        rows = [Assignment(partition_index=index, broker_ids=brokers) for index, brokers in lists]
        return NewTopic(
            name="assigned", num_partitions=partitions, replication_factor=replication, assignments=rows, configs=[]
        )

    twice = new_topic("bad-configs")
    twice.configs = [Config(name="retention.ms", value="1"), Config(name="retention.ms", value="2")]
    return [
        ("exists", new_topic("plain")),
        ("empty name", new_topic("")),
        ("name of a dot", new_topic(".")),
        ("name of two dots", new_topic("..")),
        ("name with a slash", new_topic("a/b")),
        ("name that is not ASCII", new_topic("naïve")),
        ("name of 250 characters", new_topic("n" * 250)),
        ("name that collides", new_topic("with_dot")),
        ("replication of 3", new_topic("bad-replication", 1, 3)),
        ("replication of 0", new_topic("bad-replication", 1, 0)),
        ("replication of -2", new_topic("bad-replication", 1, -2)),
        ("no partitions", new_topic("bad-partitions", 0)),
        ("-5 partitions", new_topic("bad-partitions", -5)),
        ("unknown setting", new_topic("bad-configs", no_such_thing="1")),
        ("setting that is no number", new_topic("bad-configs", retention_ms="soon")),
        ("setting out of range", new_topic("bad-configs", min_insync_replicas="0")),
        ("setting with an unknown word", new_topic("bad-configs", cleanup_policy="shred")),
        ("settings that contradict each other", _contradiction()),
        ("setting that is null", new_topic("bad-configs", retention_ms=None)),
        ("setting twice", twice),
        ("assignment with a gap", assigned((0, [1]), (2, [1]))),
        ("assignment that starts at 1", assigned((1, [1]))),
        ("assignment with a partition twice", assigned((0, [1]), (0, [1]))),
        ("assignment to an unknown broker", assigned((0, [7]))),
        ("assignment to a broker twice", assigned((0, [1, 1]))),
        ("assignment to nobody", assigned((0, []))),
        ("assignment and a number of partitions", assigned((0, [1]), partitions=1)),
        ("assignment and a replication factor", assigned((0, [1]), replication=1)),
    ]  # fmt: skip


def _contradiction() -> NewTopic:
    return new_topic("bad-configs", min_compaction_lag_ms="5", max_compaction_lag_ms="2")


def create_partitions(play: Play) -> None:
    """Grow topics, and try to shrink them."""

    def grow(*topics: More, validate_only: bool = False) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(topics=list(topics), timeout_ms=10000, validate_only=validate_only)

    def to(name: str, count: int, *brokers: list[int]) -> More:
        assignments = [MoreAssignment(broker_ids=ids) for ids in brokers] if brokers else None
        return More(name=name, count=count, assignments=assignments)

    for version in play.versions(CreatePartitionsRequest):
        name = f"grown-v{version}"
        play.ask("a topic to grow", create_request(new_topic(name)))
        play.settle(name)
        play.ask("grow: validate only", grow(to(name, 3), validate_only=True), version)
        play.ask("grow", grow(to(name, 3)), version)
        play.ask("grow by assignment", grow(to(name, 5, [1], [1])), version)
        for step, topic in [
            ("the same", to(name, 5)),
            ("fewer", to(name, 2)),
            ("none", to(name, 0)),
            ("a negative count", to(name, -1)),
            ("unknown topic", to("no-such-topic", 3)),
            ("too few assignments", to(name, 8, [1])),
            ("too many assignments", to(name, 6, [1], [1])),
            ("assignment to an unknown broker", to(name, 6, [9])),
            ("assignment to a broker twice", to(name, 6, [1, 1])),
            ("assignment to nobody", to(name, 6, [])),
        ]:
            play.ask(f"grow: {step}", grow(topic), version)
        play.ask("grow: a topic twice", grow(to(name, 6), to(name, 7)), version)
        play.ask("grow: nothing", grow(), version)
        play.settle(name)


def delete(play: Play) -> None:
    """Delete topics by name and by id, and what is not there."""
    for version in play.versions(DeleteTopicsRequest):
        names = [f"doomed-v{version}-{index}" for index in range(3)]
        play.ask("topics to delete", create_request(*(new_topic(name) for name in names)))
        play.settle(*names)
        if version < 6:
            by_name = DeleteTopicsRequest(topic_names=[names[0], "no-such-topic", ""], timeout_ms=10000)
            play.ask("delete by name", by_name, version)
            again = DeleteTopicsRequest(topic_names=[names[1], names[1]], timeout_ms=10000)
            play.ask("delete a name twice", again, version)
            play.ask("delete nothing", DeleteTopicsRequest(topic_names=[], timeout_ms=10000), version)
            play.settle_gone(names[0])
            play.ask("delete again", DeleteTopicsRequest(topic_names=[names[0]], timeout_ms=10000), version)
            continue
        for step, rows in [
            ("by name", [Doomed(name=names[0], topic_id=NO_ID), Doomed(name="no-such-topic", topic_id=NO_ID)]),
            ("by id", [Doomed(name=None, topic_id=play.ids[names[1]]), Doomed(name=None, topic_id=UNKNOWN_ID)]),
            ("by name and id", [Doomed(name=names[2], topic_id=play.ids[names[2]])]),
            ("by neither", [Doomed(name=None, topic_id=NO_ID)]),
            ("a name twice", [Doomed(name=names[2], topic_id=NO_ID)] * 2),
            (
                "by name and again by id",
                [Doomed(name=names[2], topic_id=NO_ID), Doomed(name=None, topic_id=play.ids[names[2]])],
            ),
        ]:
            play.ask(f"delete {step}", DeleteTopicsRequest(topics=rows, timeout_ms=10000), version)
        play.settle_gone(names[0], names[1])
        gone = Doomed(name=None, topic_id=play.ids[names[1]])
        play.ask("delete an id again", DeleteTopicsRequest(topics=[gone], timeout_ms=10000), version)

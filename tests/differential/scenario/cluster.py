"""What a broker says about itself and its cluster: versions, brokers, topics, log directories, leaders."""

from __future__ import annotations

from minibroker.protocol.messages.api_versions import ApiVersionsRequest
from minibroker.protocol.messages.describe_cluster import DescribeClusterRequest
from minibroker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from minibroker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from minibroker.protocol.messages.elect_leaders import ElectLeadersRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from tests.differential.play import Play
from tests.differential.scenario.build import NO_ID, UNKNOWN_ID

Asked = MetadataRequest.MetadataRequestTopic
LogDirTopic = DescribeLogDirsRequest.DescribableLogDirTopic
Described = DescribeTopicPartitionsRequest.TopicRequest
Cursor = DescribeTopicPartitionsRequest.Cursor
Elected = ElectLeadersRequest.TopicPartitions


def ask_what_is_served(play: Play) -> None:
    """Ask for versions, well and badly."""
    for version in play.versions(ApiVersionsRequest):
        good = ApiVersionsRequest(client_software_name="probe", client_software_version="1.0")
        play.ask("versions", good, version)
        play.ask("versions, again on the same connection", good, version)
        if version < 3:
            continue
        for name, number in [
            ("", "1.0"),
            ("probe", ""),
            ("-probe", "1.0"),
            ("pro be", "1"),
            ("p", "v"),
            ("p.-q", "1-"),
        ]:
            bad = ApiVersionsRequest(client_software_name=name, client_software_version=number)
            play.ask(f"versions for a client {name!r} {number!r}", bad, version)
        if version >= 5:
            for step, cluster, node in [("cluster", "another", -1), ("node", None, 9), ("itself", None, 1)]:
                named = ApiVersionsRequest(
                    client_software_name="p", client_software_version="1", cluster_id=cluster, node_id=node
                )
                play.ask(f"versions of a named {step}", named, version)


def ask_of_an_empty_cluster(play: Play) -> None:
    """Ask for brokers and topics before there are any."""
    for version in play.versions(MetadataRequest):
        play.ask("metadata of everything, nothing there", MetadataRequest(topics=None if version else []), version)
        play.ask("metadata of nothing", MetadataRequest(topics=[]), version)
    for version in play.versions(DescribeClusterRequest):
        for operations in (False, True):
            request = DescribeClusterRequest(include_cluster_authorized_operations=operations)
            play.ask(f"cluster, operations {operations}", request, version)
        for kind in (0, 2, 3):
            request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=kind)
            play.ask(f"cluster, endpoints of type {kind}", request, version)
        fenced = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
        play.ask("cluster with fenced brokers", fenced, version)


def ask_of_topics(play: Play) -> None:
    """Ask for topics in every version: known, unknown, impossible, by name and by id."""
    for version in play.versions(MetadataRequest):

        def metadata(*names: str, create: bool = False, operations: bool = False) -> MetadataRequest:
            return MetadataRequest(
                topics=[Asked(name=name) for name in names],
                allow_auto_topic_creation=create,
                include_cluster_authorized_operations=operations,
                include_topic_authorized_operations=operations,
            )

        everything = MetadataRequest(topics=None if version else [], allow_auto_topic_creation=False)
        play.ask("metadata of everything", everything, version)
        play.ask("metadata of two topics", metadata("two", "plain"), version)
        play.ask("metadata of a topic twice", metadata("two", "two"), version)
        play.ask("metadata with operations", metadata("plain", operations=True), version)
        play.ask("metadata of impossible names", metadata("a/b", "", "..", "n" * 250), version)
        if version >= 4:
            play.ask("metadata of an unknown topic", metadata("no-such-topic", "plain"), version)
        name = f"auto-v{version}"
        play.ask("metadata that creates", metadata(name, create=True), version)
        play.settle(name)
        play.ask("metadata of what it created", metadata(name), version)
        if version >= 10:
            _metadata_by_id(play, version)
    play.ask("metadata of a name that collides", MetadataRequest(topics=[Asked(name="with_dot")]))
    _describe_partitions(play)


def _metadata_by_id(play: Play, version: int) -> None:
    for step, topics in [
        ("an id", [Asked(topic_id=play.ids["plain"], name=None)]),
        ("an unknown id", [Asked(topic_id=UNKNOWN_ID, name=None), Asked(topic_id=play.ids["two"], name=None)]),
        ("an id twice", [Asked(topic_id=play.ids["two"], name=None)] * 2),
        ("an id and its name", [Asked(topic_id=play.ids["plain"], name="plain")]),
        ("an id and another name", [Asked(topic_id=play.ids["plain"], name="two")]),
        ("an id and a name", [Asked(topic_id=play.ids["plain"], name=None), Asked(name="two")]),
        ("neither id nor name", [Asked(topic_id=NO_ID, name=None)]),
    ]:
        play.ask(f"metadata of {step}", MetadataRequest(topics=topics, allow_auto_topic_creation=False), version)


def _describe_partitions(play: Play) -> None:
    for version in play.versions(DescribeTopicPartitionsRequest):
        for step, names, limit, cursor in [
            ("of topics", ["two", "plain"], 2000, None),
            ("of nothing", [], 2000, None),
            ("of an unknown topic", ["no-such-topic", "plain"], 2000, None),
            ("of impossible names", ["a/b", ""], 2000, None),
            ("of a topic twice", ["two", "two"], 2000, None),
            ("one at a time", ["sessions", "two"], 1, None),
            ("two at a time", ["sessions", "two"], 2, None),
            ("four at a time", ["sessions", "two"], 4, None),
            ("none at a time", ["sessions"], 0, None),
            ("from a cursor", ["sessions", "two"], 2, Cursor(topic_name="sessions", partition_index=2)),
            ("from a cursor at the end", ["sessions", "two"], 9, Cursor(topic_name="two", partition_index=1)),
            ("from a cursor past the end", ["sessions", "two"], 9, Cursor(topic_name="two", partition_index=5)),
            ("from a cursor before", ["sessions", "two"], 9, Cursor(topic_name="plain", partition_index=0)),
            ("from a cursor at -1", ["sessions", "two"], 9, Cursor(topic_name="two", partition_index=-1)),
        ]:
            request = DescribeTopicPartitionsRequest(
                topics=[Described(name=name) for name in names], response_partition_limit=limit, cursor=cursor
            )
            play.ask(f"partitions {step}", request, version)


def ask_for_log_directories(play: Play) -> None:
    """Ask for all logs while they are empty: what codecs make of records is not to be compared."""
    for version in play.versions(DescribeLogDirsRequest):
        play.ask("all log directories, logs empty", DescribeLogDirsRequest(topics=None), version)


def ask_for_log_sizes(play: Play) -> None:
    """Ask for the sizes of logs that are stored as they were sent."""
    for version in play.versions(DescribeLogDirsRequest):
        for step, topics in [
            ("of topics", [LogDirTopic(topic="plain", partitions=[0]), LogDirTopic(topic="two", partitions=[1, 0])]),
            ("of an unknown topic", [LogDirTopic(topic="no-such-topic", partitions=[0])]),
            ("of an unknown partition", [LogDirTopic(topic="plain", partitions=[0, 7])]),
            ("of no partition", [LogDirTopic(topic="plain", partitions=[])]),
            ("of no topic", []),
            ("of a trimmed topic", [LogDirTopic(topic="trimmed", partitions=[0])]),
        ]:
            play.ask(f"log directories {step}", DescribeLogDirsRequest(topics=topics), version)


def elect_leaders(play: Play) -> None:
    """Ask for elections where there is only one who can lead."""
    for version in play.versions(ElectLeadersRequest):
        for kind in (0, 1, 5) if version else (0,):
            for step, topics in [
                ("topics", [Elected(topic="two", partitions=[0, 1]), Elected(topic="plain", partitions=[0])]),
                ("an unknown topic", [Elected(topic="no-such-topic", partitions=[0])]),
                ("an unknown partition", [Elected(topic="plain", partitions=[7])]),
                ("nothing", []),
                ("everything", None),
            ]:
                request = ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=5000)
                play.ask(f"elect by type {kind} for {step}", request, version)

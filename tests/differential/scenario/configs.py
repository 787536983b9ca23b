"""Settings of topics and brokers: described, replaced, changed one by one."""

from __future__ import annotations

from minibroker.protocol.messages.alter_configs import AlterConfigsRequest
from minibroker.protocol.messages.describe_configs import DescribeConfigsRequest
from minibroker.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.differential.play import Play

Resource = DescribeConfigsRequest.DescribeConfigsResource
Replaced = AlterConfigsRequest.AlterConfigsResource
Value = Replaced.AlterableConfig
Changed = IncrementalAlterConfigsRequest.AlterConfigsResource
Change = Changed.AlterableConfig

SILENCE_SECONDS = 0.5
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
BROKER_KEYS = [
    "log.retention.ms", "log.segment.bytes", "message.max.bytes", "num.partitions", "auto.create.topics.enable",
    "compression.type", "log.cleanup.policy", "min.insync.replicas", "node.id", "broker.id", "log.index.interval.bytes",
    "ssl.keystore.password", "no.such.setting", "log.flush.interval.messages", "unclean.leader.election.enable",
    "socket.request.max.bytes", "max.connections", "default.replication.factor", "delete.topic.enable",
]  # fmt: skip


def describe(play: Play) -> None:
    """Describe topics and brokers in every version."""
    for version in play.versions(DescribeConfigsRequest):
        for step, kind, name, keys in [
            ("a topic", TOPIC, "settings", None),
            ("a topic of defaults", TOPIC, "plain", None),
            ("some of a topic", TOPIC, "settings", ["retention.ms", "no.such.setting", "cleanup.policy"]),
            ("a key twice", TOPIC, "settings", ["retention.ms", "retention.ms"]),
            ("none of a topic", TOPIC, "settings", []),
            ("an unknown topic", TOPIC, "no-such-topic", None),
            ("an impossible topic", TOPIC, "a/b", None),
            ("a topic without a name", TOPIC, "", None),
            ("some of the broker", BROKER, "1", BROKER_KEYS),
            ("an unknown broker", BROKER, "9", ["num.partitions"]),
            ("a broker that is no number", BROKER, "one", ["num.partitions"]),
            ("all brokers", BROKER, "", None),
            ("the loggers of another broker", LOGGER, "9", None),
            ("an unknown kind", 99, "x", None),
            ("a kind of 0", 0, "x", None),
        ]:
            resource = Resource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for synonyms in (False, True):
                request = DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)
                play.ask(f"settings of {step}{', with synonyms' if synonyms else ''}", request, version)
        several = [Resource(resource_type=TOPIC, resource_name=name, configuration_keys=["retention.ms"])
                   for name in ("two", "plain", "two", "no-such-topic")]  # fmt: skip
        play.ask("settings of several", DescribeConfigsRequest(resources=several), version)
        documented = Resource(resource_type=TOPIC, resource_name="settings", configuration_keys=None)
        request = DescribeConfigsRequest(resources=[documented], include_synonyms=True, include_documentation=True)
        play.ask("settings with documentation", request, version)


def alter(play: Play) -> None:
    """Replace all settings of a resource."""
    for version in play.versions(AlterConfigsRequest):

        def request(*resources: Replaced, validate_only: bool = False) -> AlterConfigsRequest:
            return AlterConfigsRequest(resources=list(resources), validate_only=validate_only)

        def topic(name: str, *pairs: tuple[str, str | None], kind: int = TOPIC) -> Replaced:
            values = [Value(name=key, value=value) for key, value in pairs]
            return Replaced(resource_type=kind, resource_name=name, configs=values)

        retention = str(1_000_000 + version)
        play.ask(
            "replace: validate only", request(topic("settings", ("retention.ms", "5")), validate_only=True), version
        )
        play.ask("replace", request(topic("settings", ("retention.ms", retention), ("segment.ms", "9999999"))), version)
        _show(play, "retention.ms", retention)
        for step, resource in [
            ("unknown setting", topic("settings", ("no.such.setting", "1"))),
            ("no number", topic("settings", ("retention.ms", "soon"))),
            ("out of range", topic("settings", ("min.insync.replicas", "0"))),
            ("null", topic("settings", ("retention.ms", None))),
            ("unknown topic", topic("no-such-topic", ("retention.ms", "1"))),
            ("impossible topic", topic("a/b", ("retention.ms", "1"))),
            ("unknown broker", topic("9", ("log.retention.ms", "1"), kind=BROKER)),
            ("broker that is no number", topic("one", ("log.retention.ms", "1"), kind=BROKER)),
            ("setting of a broker that cannot change", topic("1", ("node.id", "5"), kind=BROKER)),
            ("unknown kind", topic("x", ("a", "b"), kind=99)),
        ]:
            play.ask(f"replace: {step}", request(resource), version)
        mixed = request(topic("no-such-topic", ("retention.ms", "1")), topic("settings", ("retention.ms", "77777")))
        play.ask("replace: good and bad together", mixed, version)
        _show(play, "retention.ms", "77777")
        same = topic("settings", ("retention.ms", "1000"))
        play.ask_silence("replace: a topic twice", request(same, same), version, SILENCE_SECONDS)
        play.ask(
            "replace: a key twice", request(topic("settings", ("retention.ms", "1"), ("retention.ms", "2"))), version
        )
        play.ask("replace: nothing", request(), version)
        play.ask("replace by nothing", request(topic("settings")), version)
        _show(play, "retention.ms", "604800000")


def alter_a_part(play: Play) -> None:
    """Set, delete, append and subtract."""
    for version in play.versions(IncrementalAlterConfigsRequest):

        def request(*resources: Changed, validate_only: bool = False) -> IncrementalAlterConfigsRequest:
            return IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)

        def change(name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC) -> Changed:
            rows = [Change(name=key, config_operation=operation, value=value) for key, operation, value in changes]
            return Changed(resource_type=kind, resource_name=name, configs=rows)

        retention = str(2_000_000 + version)
        only = request(change("settings", ("retention.ms", SET, "5")), validate_only=True)
        play.ask("change: validate only", only, version)
        play.ask("change: set", request(change("settings", ("retention.ms", SET, retention))), version)
        _show(play, "retention.ms", retention)
        play.ask("change: append", request(change("settings", ("cleanup.policy", APPEND, "compact"))), version)
        _show(play, "cleanup.policy", "delete,compact")
        play.ask("change: append again", request(change("settings", ("cleanup.policy", APPEND, "compact"))), version)
        play.ask("change: subtract", request(change("settings", ("cleanup.policy", SUBTRACT, "delete"))), version)
        _show(play, "cleanup.policy", "compact")
        play.ask(
            "change: subtract what is not there",
            request(change("settings", ("cleanup.policy", SUBTRACT, "delete"))),
            version,
        )
        play.ask(
            "change: delete",
            request(change("settings", ("retention.ms", DELETE, None), ("cleanup.policy", DELETE, "x"))),
            version,
        )
        _show(play, "retention.ms", "604800000")
        for step, resource in [
            ("append to a number", change("settings", ("retention.ms", APPEND, "1"))),
            ("subtract from a number", change("settings", ("retention.ms", SUBTRACT, "1"))),
            ("unknown operation", change("settings", ("retention.ms", 9, "1"))),
            ("unknown setting", change("settings", ("no.such.setting", SET, "1"))),
            ("delete an unknown setting", change("settings", ("no.such.setting", DELETE, None))),
            ("no number", change("settings", ("retention.ms", SET, "soon"))),
            ("set to null", change("settings", ("retention.ms", SET, None))),
            ("a key twice", change("settings", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))),
            ("unknown topic", change("no-such-topic", ("retention.ms", SET, "1"))),
            ("impossible topic", change("a/b", ("retention.ms", SET, "1"))),
            ("topic without a name", change("", ("retention.ms", SET, "1"))),
            ("unknown broker", change("9", ("log.retention.ms", SET, "1"), kind=BROKER)),
            ("broker that is no number", change("one", ("log.retention.ms", SET, "1"), kind=BROKER)),
            ("setting of a broker that cannot change", change("1", ("node.id", SET, "5"), kind=BROKER)),
            ("unknown setting of a broker", change("1", ("no.such.setting", DELETE, None), kind=BROKER)),
            ("unknown operation of a broker", change("1", ("log.retention.ms", 9, "1"), kind=BROKER)),
            ("no number for a broker", change("1", ("log.retention.ms", SET, "soon"), kind=BROKER)),
            ("unknown kind", change("x", ("a", SET, "b"), kind=99)),
        ]:
            play.ask(f"change: {step}", request(resource), version)
        same = change("settings", ("retention.ms", SET, "1000"))
        play.ask("change: a topic twice", request(same, same), version)
        play.ask("change: nothing", request(), version)
        for step, name in [("a broker", "1"), ("all brokers", "")]:
            size = str(50_000_000 + version)
            play.ask(
                f"change: set of {step}", request(change(name, ("log.segment.bytes", SET, size), kind=BROKER)), version
            )
            _show(play, "segment.bytes", size)
            play.ask(
                f"change: delete of {step}",
                request(change(name, ("log.segment.bytes", DELETE, None), kind=BROKER)),
                version,
            )
            _show(play, "segment.bytes", "1073741824")


def _show(play: Play, key: str, value: str) -> None:
    """Wait until a setting of the topic is what it should be, then compare all of the topic and of the broker."""
    resource = Resource(resource_type=TOPIC, resource_name="settings", configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    play.wait_for(
        f"{key}={value}", request,
        lambda answer: any(row.name == key and row.value == value for row in answer.results[0].configs),
    )  # fmt: skip
    play.ask(f"settings once {key} is {value}", request)
    resource = Resource(resource_type=BROKER, resource_name="1", configuration_keys=["log.segment.bytes"])
    play.ask(
        f"settings of the broker once {key} is {value}",
        DescribeConfigsRequest(resources=[resource], include_synonyms=True),
    )

"""Plays the cases of acl_cases.py to a broker, Kafka or ours, and says what was answered in words that both share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from minibroker.broker.apis import SERVED
from minibroker.errors import Error
from minibroker.protocol.framing import encode_request
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from minibroker.schema.message import Struct
from minibroker.security import acls
from tests.security.acl_cases import NO_ID, TOPICS, Case, RuleRow, World, asked, batch, request_of, rules_of

ADMIN, ALICE, BOB = "admin", "alice", "bob"
# Ask as one of them: the answer, None if the connection was closed instead.
Ask = Callable[[Request, int, str], Any]

CLIENT_ID = "acls"
CORRELATION_ID = 7
TRIES = 400
OPEN_MS = 900_000  # how long a transaction may take: longer than all of it
# What is another at each broker, or says nothing of rules.
MASKED = frozenset(
    (
        *("throttle_time_ms", "host", "port", "cluster_id", "controller_id", "log_dir", "total_bytes", "usable_bytes"),
        *("session_id", "node_id", "producer_id", "last_timestamp", "offset_lag", "partition_size", "is_future_key"),
        *("replica_nodes", "isr_nodes", "eligible_leader_replicas", "last_known_elr", "brokers", "node_endpoints"),
        *("log_append_time_ms", "transaction_start_time_ms", "active_producers", "coordinator_epoch", "records"),
        *("leader_epoch", "committed_leader_epoch", "configs", "timestamp", "end_offset", "member_id", "protocol_name"),
        *("topic_config_error_code", "heartbeat_interval_ms", "diverging_epoch", "current_leader", "snapshot_id"),
        *("preferred_read_replica", "aborted_transactions", "broker_epoch", "producer_epoch"),
        *("token_id", "hmac", "issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms", "issue_timestamp"),
        *("expiry_timestamp", "max_timestamp", "api_keys", "supported_features", "finalized_features"),
        *("finalized_features_epoch", "zk_migration_ready", "transaction_timeout_ms"),
    )
)
OFFSETS = ("low_watermark", "high_watermark", "log_start_offset", "last_stable_offset", "offset", "base_offset")
AUTHORIZATION_FAILED = (29, 30, 31, 53, 65)
OF_RULES = (29, 30, 31)  # APIs of which every word counts
# Texts in which Kafka shows a whole request, or its own words for what has nothing to do with rules.
REQUEST_SHOWN = re.compile(r"^Request .* (needs \w+ permission|is not authorized)\.$", re.DOTALL)


class Play:
    """A broker that is asked, and what it is told before."""

    def __init__(self, ask: Ask, release: str, versions: dict[int, tuple[int, int]]):
        self.ask = ask
        self.release = release
        self.versions = versions
        self.world = World({}, (-1, -1), release)
        self._with_words = False

    def answers(self) -> Iterator[tuple[str, str, int, Any]]:
        """Yield case, variation, version and answer of everything that is asked of the release."""
        self.set_up()
        for case, variation in asked(self.release):
            version = self._version(case)
            if version < 0:
                continue
            self.set_rules(rules_of(case, variation, self.world))
            for name in case.prepare:
                self._renew(name)
            answer = self.ask(case.build(self.world, version), version, ALICE)
            self._with_words = case.api in OF_RULES
            yield case.name, variation, version, self.told(answer)

    def _version(self, case: Case) -> int:
        served = self.versions.get(case.api)
        if served is None:
            return -1
        first, last = served
        last = min(last, SERVED[case.api][1])
        if case.version > last or 0 <= case.version < first:
            return -1
        return last if case.version < 0 else case.version

    # What the administrator does

    def admin(self, request: Request) -> Any:
        version = min(self.versions[request.api][1], SERVED[request.api][1])
        return self.ask(request, version, ADMIN)

    def until(self, ask: Callable[[], Any], is_right: Callable[[Any], bool]) -> Any:
        answer = None
        for _ in range(TRIES):
            answer = ask()
            if is_right(answer):
                return answer
            self.pause()
        raise AssertionError(f"never right: {answer}")

    def pause(self) -> None:
        """Let a little time pass."""

    def set_up(self) -> None:
        for name, partitions in TOPICS.items():
            self._create(name, partitions)
        for name in ("orders", "secret"):
            self._produce(name)
        for group in ("readers", "others", "gone"):
            self._commit(group, ("orders", "secret"))
        self._find(1, "pay")
        Init = request_of(22)

        def initialised(name: str) -> Any:
            return self.until(
                lambda: self.ask(Init(transactional_id=name, transaction_timeout_ms=OPEN_MS), 4, ADMIN),
                lambda made: made.error_code == 0,
            )

        initialised("other")
        self._begin("busy", initialised("busy"))
        made = initialised("pay")
        self.world.producer = (made.producer_id, made.producer_epoch)
        self._make_token()

    def _begin(self, name: str, made: Any) -> None:
        """Have a transaction that goes on, with partitions of two topics."""
        cls = request_of(24)
        begun = cls(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=made.producer_id,
            v3_and_below_producer_epoch=made.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=each, partitions=[0]) for each in ("orders", "secret")],
        )
        self.until(
            lambda: self.ask(begun, 3, ADMIN),
            lambda made: all(
                row.partition_error_code == 0
                for topic in made.results_by_topic_v3_and_below
                for row in topic.results_by_partition
            ),
        )

    def _make_token(self) -> None:
        """Have bob make a token, and return when every broker knows of it."""
        made = self.ask(request_of(38)(renewers=[], max_lifetime_ms=-1), 3, BOB)
        assert made.error_code == 0, made
        self.world.token_id, self.world.hmac = made.token_id, bytes(made.hmac)
        self.until(lambda: self.ask(request_of(41)(owners=None), 3, BOB), lambda known: len(known.tokens) == 1)

    def _create(self, name: str, partitions: int) -> None:
        cls = request_of(19)
        topic = cls.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        made = self.admin(cls(topics=[topic], timeout_ms=10_000, validate_only=False))
        assert made.topics[0].error_code == Error.NONE, made
        Metadata = request_of(3)
        found = self.until(
            lambda: self.ask(Metadata(topics=[Metadata.MetadataRequestTopic(name=name)]), 12, ADMIN),
            lambda known: (
                known.topics[0].error_code == 0
                and len(known.topics[0].partitions) == partitions
                and all(row.error_code == 0 for row in known.topics[0].partitions)
            ),
        )
        self.world.ids[name] = bytes(found.topics[0].topic_id)

    def _renew(self, name: str) -> None:
        cls = request_of(20)
        if name in self.world.ids:
            self.ask(cls(topic_names=[name], timeout_ms=10_000), 5, ADMIN)
            Metadata = request_of(3)
            self.until(
                lambda: self.ask(
                    Metadata(topics=[Metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False),
                    12,
                    ADMIN,
                ),
                lambda known: known.topics[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION,
            )
        self._create(name, 1)

    def _produce(self, name: str) -> None:
        cls = request_of(0)
        Topic = cls.TopicProduceData
        rows = [Topic(name=name, partition_data=[Topic.PartitionProduceData(index=0, records=batch())])]
        self.until(
            lambda: self.ask(cls(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=rows), 9, ADMIN),
            lambda made: made.responses[0].partition_responses[0].error_code == 0,
        )

    def _commit(self, group: str, names: tuple[str, ...]) -> None:
        self._find(0, group)
        cls = request_of(8)
        Topic = cls.OffsetCommitRequestTopic
        Row = Topic.OffsetCommitRequestPartition
        one = [Row(partition_index=0, committed_offset=1, committed_metadata="")]
        request = cls(group_id=group, topics=[Topic(name=name, partitions=one) for name in names])
        self.until(
            lambda: self.ask(request, 8, ADMIN),
            lambda made: all(row.error_code == 0 for topic in made.topics for row in topic.partitions),
        )

    def _find(self, kind: int, key: str) -> None:
        """Have the topic of a coordinator made, and return when it has one."""
        Find = request_of(10)
        self.until(
            lambda: self.ask(Find(key_type=kind, coordinator_keys=[key]), 4, ADMIN),
            lambda found: found.coordinators[0].error_code == 0,
        )

    def set_rules(self, rules: list[RuleRow]) -> None:
        """Have these rules, and no others; return when the broker goes by them."""
        Delete = request_of(31)
        every: dict[str, Any] = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
        every |= {"operation": acls.ANY, "permission_type": acls.ANY}
        every |= {"resource_type_filter": acls.ANY, "pattern_type_filter": acls.ANY}
        gone = self.admin(Delete(filters=[Delete.DeleteAclsFilter(**every)]))
        assert gone.filter_results[0].error_code == Error.NONE
        Create = request_of(30)
        if rules:
            made = self.admin(
                Create(
                    creations=[
                        Create.AclCreation(
                            resource_type=kind,
                            resource_pattern_type=pattern,
                            resource_name=name,
                            principal=who,
                            host=host,
                            operation=operation,
                            permission_type=permission,
                        )
                        for kind, pattern, name, who, host, operation, permission in rules
                    ]
                )
            )
            assert all(each.error_code == Error.NONE for each in made.results), made
        Describe = request_of(29)
        self.until(lambda: self.admin(Describe(**every)), lambda known: _rules_in(known) == set(rules))
        self.pause()

    # Words

    def told(self, answer: Any) -> Any:
        """Return an answer without what two brokers cannot have in common."""
        return "closed" if answer is None else self._told(answer, "")

    def _told(self, value: Any, field: str) -> Any:
        if field in MASKED:
            return "..."
        if isinstance(value, Struct):
            told = {name: self._told(getattr(value, name), name) for name in value.__fields_all__()}
            told_why = self._with_words or told.get("error_code") in AUTHORIZATION_FAILED
            if "error_message" in told and not told_why:
                told["error_message"] = "..."  # other words are no part of this
            return told
        if field in OFFSETS:
            return "offset" if value >= 0 else value
        if isinstance(value, list):
            made = [self._told(each, f"{field} each") for each in value]
            return sorted(made, key=repr)
        if isinstance(value, bytes | memoryview):
            found = bytes(value)
            if field in ("topic_id", "topic_ids each"):
                return "" if found == NO_ID else self.world.name_of(found) or "unknown"
            return found.hex()
        if isinstance(value, str) and field == "error_message" and REQUEST_SHOWN.match(value):
            return "Request needs permission."
        return int(value) if isinstance(value, bool | int) else value


def _rules_in(known: Any) -> set[RuleRow]:
    return {
        (
            resource.resource_type,
            resource.pattern_type,
            resource.resource_name,
            rule.principal,
            rule.host,
            rule.operation,
            rule.permission_type,
        )
        for resource in known.resources
        for rule in resource.acls
    }


def framed(request: Request, version: int) -> bytes:
    """Return header and message of a request."""
    return b"".join(encode_request(request, version, CORRELATION_ID, CLIENT_ID))[4:]

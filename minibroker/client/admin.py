"""Admin: topics, settings and the rest of what administrators and test fixtures do.

Methods that take many items return a dict of results, and raise SomeFailed if any of the items failed for good.
A resource is a pair such as ("topic", "orders") or ("broker", "1").
Not here: groups, ACLs, quotas, reassignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from minibroker.client.cluster import Cluster, Topic, TopicPartition
from minibroker.client.connection import error_of
from minibroker.client.descriptions import (
    Append,
    ClusterDescription,
    ConfigEntry,
    ConfigSynonym,
    CreatedTopic,
    LogDir,
    NewTopic,
    ProducerState,
    SomeFailed,
    Subtract,
)
from minibroker.client.offsets import AtTime, FoundOffset, find_offsets
from minibroker.errors import Error, KafkaError
from minibroker.protocol.headers import Request

K = TypeVar("K")

R = TypeVar("R")

Resource = tuple[str, str]


RESOURCE_TYPES = {"topic": 2, "broker": 4, "broker_logger": 8, "client_metrics": 16, "group": 32}
SET, DELETE, APPEND, SUBTRACT = range(4)
SOURCE_DEFAULT = 5


class Admin:
    """Uses the connections of the cluster; nothing to close."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int = 30_000):
        self._cluster = cluster
        self._timeout_ms = timeout_ms  # how long brokers may work on a request

    # Topics

    async def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic]:
        """Create topics; a bare name leaves everything to the broker."""
        from minibroker.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

        Row = CreateTopicsRequest.CreatableTopic
        rows = [
            Row(
                name=topic.name,
                num_partitions=topic.partition_count,
                replication_factor=topic.replication_factor,
                assignments=[
                    Row.CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
                    for index, ids in topic.assignments.items()
                ],
                configs=[Row.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
            )
            for topic in (NewTopic(topic) if isinstance(topic, str) else topic for topic in topics)
        ]
        request = CreateTopicsRequest(topics=rows, timeout_ms=self._timeout_ms, validate_only=validate_only)
        answer: CreateTopicsResponse = await self._ask_controller(request, lambda answer: answer.topics)
        results: dict[str, CreatedTopic] = {}
        errors: dict[str, KafkaError] = {}
        for row in answer.topics:
            configs = {config.name: config.value for config in row.configs or ()}
            created = CreatedTopic(row.name, row.topic_id, row.num_partitions, row.replication_factor, configs)
            _sort(row.name, created, row.error_code, row.error_message, results, errors)
        return _all_or_raise(results, errors)

    async def delete_topics(self, names: Iterable[str]) -> None:
        from minibroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

        wanted = list(names)
        request = DeleteTopicsRequest(
            topic_names=wanted,
            topics=[DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=bytes(16)) for name in wanted],
            timeout_ms=self._timeout_ms,
        )
        answer: DeleteTopicsResponse = await self._ask_controller(request, lambda answer: answer.responses)
        self._cluster.forget(*wanted)
        errors: dict[str, KafkaError] = {}
        results: dict[str, None] = {}
        for row in answer.responses:
            _sort(row.name or "", None, row.error_code, row.error_message, results, errors)
        _all_or_raise(results, errors)

    async def create_partitions(self, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
        """Give topics so many partitions in all."""
        from minibroker.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

        Row = CreatePartitionsRequest.CreatePartitionsTopic
        request = CreatePartitionsRequest(
            topics=[Row(name=name, count=count, assignments=None) for name, count in counts.items()],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        answer: CreatePartitionsResponse = await self._ask_controller(request, lambda answer: answer.results)
        self._cluster.forget(*counts)
        errors: dict[str, KafkaError] = {}
        results: dict[str, None] = {}
        for row in answer.results:
            _sort(row.name, None, row.error_code, row.error_message, results, errors)
        _all_or_raise(results, errors)

    async def describe_topics(self, names: Iterable[str] | None = None) -> dict[str, Topic]:
        """Return topics with their partitions and who holds them; all there are if none are named."""
        results: dict[str, Topic] = {}
        errors: dict[str, KafkaError] = {}
        for name, topic in (await self._cluster.metadata(names)).items():
            _sort(name, topic, topic.error, None, results, errors)
        return _all_or_raise(results, errors)

    # Settings

    async def describe_configs(
        self,
        resources: Iterable[Resource],
        names: Iterable[str] | None = None,
        *,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> dict[Resource, dict[str, ConfigEntry]]:
        """Return settings by resource and name; all that a resource has if none are named."""
        from minibroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

        keys = None if names is None else list(names)
        Row = DescribeConfigsRequest.DescribeConfigsResource
        results: dict[Resource, dict[str, ConfigEntry]] = {}
        errors: dict[Resource, KafkaError] = {}
        for node_id, group in _by_node(resources).items():
            request = DescribeConfigsRequest(
                resources=[
                    Row(resource_type=RESOURCE_TYPES[kind], resource_name=name, configuration_keys=keys)
                    for kind, name in group
                ],
                include_synonyms=synonyms,
                include_documentation=documentation,
            )
            answer: DescribeConfigsResponse = await self._ask(request, node_id, lambda answer: answer.results)
            for row in answer.results:
                entries = {config.name: _config_entry(config) for config in row.configs}
                _sort(_resource(row), entries, row.error_code, row.error_message, results, errors)
        return _all_or_raise(results, errors)

    async def alter_configs(
        self,
        changes: Mapping[Resource, Mapping[str, str | Append | Subtract | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set, or with None go back to the default; what is not named stays (Kafka 2.3 and later)."""
        from minibroker.protocol.messages.incremental_alter_configs import (
            IncrementalAlterConfigsRequest,
            IncrementalAlterConfigsResponse,
        )

        Row = IncrementalAlterConfigsRequest.AlterConfigsResource
        errors: dict[Resource, KafkaError] = {}
        results: dict[Resource, None] = {}
        for node_id, group in _by_node(changes).items():
            rows = [
                Row(
                    resource_type=RESOURCE_TYPES[resource[0]],
                    resource_name=resource[1],
                    configs=[
                        Row.AlterableConfig(name=name, config_operation=_operation(change), value=_value(change))
                        for name, change in changes[resource].items()
                    ],
                )
                for resource in group
            ]
            request = IncrementalAlterConfigsRequest(resources=rows, validate_only=validate_only)
            answer: IncrementalAlterConfigsResponse = await self._ask(request, node_id, lambda answer: answer.responses)
            for row in answer.responses:
                _sort(_resource(row), None, row.error_code, row.error_message, results, errors)
        _all_or_raise(results, errors)

    # Partitions

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int | str | AtTime], *, read_committed: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """Find offsets by "earliest", "latest", "max" (the newest timestamp) or AtTime(ms); -1: there is none."""
        found = await find_offsets(self._cluster, wanted, int(read_committed))
        errors = {key: result for key, result in found.items() if isinstance(result, KafkaError)}
        results = {key: result for key, result in found.items() if not isinstance(result, KafkaError)}
        return _all_or_raise(results, errors)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Throw away what is before an offset, -1: everything; return where the partitions begin now."""
        from minibroker.protocol.messages.delete_records import DeleteRecordsRequest

        Row = DeleteRecordsRequest.DeleteRecordsTopic

        def request(partitions: list[TopicPartition]) -> Request:
            rows = {topic: Row(name=topic, partitions=[]) for topic, _ in partitions}
            for topic, index in partitions:
                offset = before[topic, index]
                rows[topic].partitions.append(Row.DeleteRecordsPartition(partition_index=index, offset=offset))
            return DeleteRecordsRequest(topics=list(rows.values()), timeout_ms=self._timeout_ms)

        return await self._ask_leaders(before, request, lambda row: int(row.low_watermark))

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker: int | None = None
    ) -> dict[TopicPartition, list[ProducerState]]:
        """Return what the leaders remember of producers (Kafka 2.8 and later), or one broker with replicas."""
        from minibroker.protocol.messages.describe_producers import DescribeProducersRequest

        Row = DescribeProducersRequest.TopicRequest

        def request(partitions: list[TopicPartition]) -> Request:
            rows = {topic: Row(name=topic, partition_indexes=[]) for topic, _ in partitions}
            for topic, index in partitions:
                rows[topic].partition_indexes.append(index)
            return DescribeProducersRequest(topics=list(rows.values()))

        def states(row: Any) -> list[ProducerState]:
            return [
                ProducerState(
                    state.producer_id,
                    state.producer_epoch,
                    state.last_sequence,
                    state.last_timestamp,
                    state.coordinator_epoch,
                    state.current_txn_start_offset,
                )
                for state in row.active_producers
            ]

        return await self._ask_leaders(partitions, request, states, broker=broker)

    # Brokers

    async def describe_cluster(self) -> ClusterDescription:
        await self._cluster.metadata([])
        nodes = {node.id: (node.host, node.port) for node in self._cluster.nodes.values()}
        return ClusterDescription(self._cluster.cluster_id, self._cluster.controller_id, nodes)

    async def describe_log_dirs(self, node_ids: Iterable[int] | None = None) -> dict[int, list[LogDir]]:
        """Return the log directories of brokers, all if none are named, with the sizes of the partitions in them."""
        from minibroker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

        if node_ids is None:
            node_ids = (await self.describe_cluster()).nodes
        found: dict[int, list[LogDir]] = {}
        for node_id in node_ids:
            request = DescribeLogDirsRequest(topics=None)
            answer: DescribeLogDirsResponse = await self._ask(request, node_id, lambda answer: ())
            if answer.error_code:
                raise error_of(answer.error_code, f"log directories of broker {node_id}")
            found[node_id] = [
                LogDir(
                    row.log_dir,
                    row.error_code,
                    {
                        (topic.name, partition.partition_index): partition.partition_size
                        for topic in row.topics
                        for partition in topic.partitions
                    },
                    row.total_bytes,
                    row.usable_bytes,
                )
                for row in answer.results
            ]
        return found

    # Asking

    async def _ask(
        self, request: Request, node_id: int | None, rows: Callable[[Any], Iterable[Any]], to_controller: bool = False
    ) -> Any:
        """Ask one broker, again if all that it says is that this will pass."""

        async def ask() -> Any:
            target = node_id
            if to_controller:
                await self._cluster.ask_metadata([])
                target = self._cluster.controller_id if self._cluster.controller_id in self._cluster.nodes else None
            answer = await self._cluster.call(request, target, timeout_ms=self._timeout_ms + self._cluster.timeout_ms)
            codes = {row.error_code for row in rows(answer)}
            if codes == {Error.NOT_CONTROLLER}:
                raise KafkaError(Error.NOT_CONTROLLER, f"broker {target}")
            return answer

        return await self._cluster.retrying(ask)

    async def _ask_controller(self, request: Request, rows: Callable[[Any], Iterable[Any]]) -> Any:
        """In ZooKeeper clusters only the controller answers; in others every broker says that it is one."""
        return await self._ask(request, None, rows, to_controller=True)

    async def _ask_leaders(
        self,
        partitions: Iterable[TopicPartition],
        request: Callable[[list[TopicPartition]], Request],
        result: Callable[[Any], R],
        *,
        broker: int | None = None,
    ) -> dict[TopicPartition, R]:
        """Ask the leaders of partitions, or one broker about all of them."""
        wanted = list(partitions)

        async def ask() -> tuple[dict[TopicPartition, R], dict[TopicPartition, KafkaError]]:
            results: dict[TopicPartition, R] = {}
            errors: dict[TopicPartition, KafkaError] = {}
            sorted_by_leader = await self._cluster.by_leader(wanted) if broker is None else {broker: wanted}
            for leader, led in sorted_by_leader.items():
                answer = await self._cluster.call(request(led), leader)
                for topic in answer.topics:
                    for row in topic.partitions:
                        key = (topic.name, row.partition_index)
                        _sort(key, result(row), row.error_code, None, results, errors)
            for error in errors.values():
                if error.code.retriable:
                    raise error
            return results, errors

        return _all_or_raise(*await self._cluster.retrying(ask, {topic for topic, _ in wanted}))


def _sort(item: K, result: R, code: int, message: str | None, results: dict[K, R], errors: dict[K, KafkaError]) -> None:
    if code:
        errors[item] = error_of(code, message or "")
    else:
        results[item] = result


def _all_or_raise(results: dict[K, R], errors: dict[K, KafkaError]) -> dict[K, R]:
    if errors:
        raise SomeFailed(errors, results)
    return results


def _by_node(resources: Iterable[tuple[str, str]]) -> dict[int | None, list[tuple[str, str]]]:
    """Sort resources by who must be asked: only a broker itself knows its own settings."""
    found: dict[int | None, list[tuple[str, str]]] = {}
    for kind, name in resources:
        own = kind in ("broker", "broker_logger") and name
        found.setdefault(int(name) if own else None, []).append((kind, name))
    return found


def _resource(row: Any) -> tuple[str, str]:
    kinds = {number: kind for kind, number in RESOURCE_TYPES.items()}
    return kinds[row.resource_type], row.resource_name


def _config_entry(row: Any) -> ConfigEntry:
    return ConfigEntry(
        row.name,
        row.value,
        row.config_source,
        row.is_default or row.config_source == SOURCE_DEFAULT,
        row.is_sensitive,
        row.read_only,
        row.config_type,
        tuple(ConfigSynonym(synonym.name, synonym.value, synonym.source) for synonym in row.synonyms),
        row.documentation,
    )


def _operation(change: str | Append | Subtract | None) -> int:
    if change is None:
        return DELETE
    return APPEND if isinstance(change, Append) else SUBTRACT if isinstance(change, Subtract) else SET


def _value(change: str | Append | Subtract | None) -> str | None:
    return change.value if isinstance(change, Append | Subtract) else change

"""A controller and the brokers that it hears of, without logs or a network: an image and what is asked of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from minibroker.controller.alter_partition import alter_partition
from minibroker.controller.controller import Controller
from minibroker.controller.elections import elect_leaders
from minibroker.controller.reassignment import alter_reassignments
from minibroker.controller.registrations import SESSION_TIMEOUT_MS, Registrations
from minibroker.metadata.bootstrap import random_id
from minibroker.metadata.features import FINALIZED, supported
from minibroker.metadata.image import MetadataImage, Partition
from minibroker.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from minibroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from minibroker.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from minibroker.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from minibroker.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from minibroker.stored.cluster import FeatureLevelRecord
from minibroker.stored.topics import ConfigRecord

CLUSTER_ID = "EBESExQVFhcYGRobHB0eHw"


def no_check(kind: int, name: str, configs: Mapping[str, str]) -> None:
    """Settings are fine as they are."""


class SmallCluster:
    """The state of a cluster, and its controller."""

    def __init__(self, brokers: Sequence[int] = (), *, release: str = "4.4", racks: Mapping[int, str] | None = None):
        self.release = release
        self.racks = racks or {}
        self.image = MetadataImage()
        self.next_offset = 0
        self.now_ms = 0
        self.lives: dict[int, int] = {}  # of each broker, how often it has started
        self.append([FeatureLevelRecord(name=name, feature_level=level) for name, level in FINALIZED[release].items()])
        self.ids = Random(7)
        self.restart_controller()
        self.registrations = Registrations(self.controller, cluster_id=CLUSTER_ID)
        for broker in brokers:
            self.start(broker)

    def restart_controller(self) -> None:
        """Let another controller go on with the same metadata."""
        self.controller = Controller(
            self.image,
            node_id=0,
            new_id=lambda: random_id(self.ids),
            check_configs=no_check,
            supported_features=supported(self.release),
        )

    def append(self, records: Sequence[Any]) -> None:
        for record in records:
            self.image.apply(record)
            self.next_offset += 1

    # Brokers

    def registration_request(self, broker: int, **more: Any) -> BrokerRegistrationRequest:
        """Return what a broker says at its start; `lives` makes its incarnation id."""
        registered = self.image.brokers.get(broker)
        values: dict[str, Any] = {
            "broker_id": broker,
            "cluster_id": CLUSTER_ID,
            "incarnation_id": bytes([broker]) * 15 + bytes([self.lives.get(broker, 0)]),
            "listeners": [
                BrokerRegistrationRequest.Listener(
                    name="PLAINTEXT", host="localhost", port=9092 + broker, security_protocol=0
                )
            ],
            "features": [
                BrokerRegistrationRequest.Feature(
                    name=name, min_supported_version=lowest, max_supported_version=highest
                )
                for name, (lowest, highest) in supported(self.release).items()
            ],
            "rack": self.racks.get(broker),
            "log_dirs": [bytes([broker]) * 16],
            "previous_broker_epoch": -1 if registered is None else registered.broker_epoch,
        }
        return BrokerRegistrationRequest(**{**values, **more})

    def register(self, broker: int, **more: Any) -> BrokerRegistrationResponse:
        request = self.registration_request(broker, **more)
        records, response = self.registrations.register(request, next_offset=self.next_offset, steady_ms=self.now_ms)
        self.append(records)
        return response

    def heartbeat_request(self, broker: int, **more: Any) -> BrokerHeartbeatRequest:
        registered = self.image.brokers.get(broker)
        values: dict[str, Any] = {
            "broker_id": broker,
            "broker_epoch": -1 if registered is None else registered.broker_epoch,
            "current_metadata_offset": self.next_offset - 1,
            "want_fence": False,
            "want_shut_down": False,
        }
        return BrokerHeartbeatRequest(**{**values, **more})

    def heartbeat(self, broker: int, **more: Any) -> BrokerHeartbeatResponse:
        request = self.heartbeat_request(broker, **more)
        records, response = self.registrations.heartbeat(request, next_offset=self.next_offset, steady_ms=self.now_ms)
        self.append(records)
        return response

    def start(self, broker: int, **more: Any) -> None:
        """Let a broker come and be unfenced; it stopped in order before, unless previous_broker_epoch is -1."""
        self.lives[broker] = self.lives.get(broker, 0) + 1
        assert not self.register(broker, **more).error_code
        assert not self.heartbeat(broker).is_fenced

    def stop(self, broker: int) -> None:
        """Let a broker stop in order; the others keep up with the metadata."""
        while not self.heartbeat(broker, want_shut_down=True).should_shut_down:
            for other in self.image.brokers:
                if other != broker and not self.image.brokers[other].fenced:
                    self.heartbeat(other)

    def kill(self, *silent: int) -> None:
        """Let time go by in which everybody but these says that it lives, until they are fenced."""
        self.now_ms += SESSION_TIMEOUT_MS + 1
        for broker in self.image.brokers:
            if broker not in silent and not self.image.brokers[broker].fenced:
                self.heartbeat(broker)
        while records := self.registrations.expire(self.now_ms):
            self.append(records)

    # Partitions

    def create(self, *replicas: Sequence[int], name: str = "a", configs: Mapping[str, str] | None = None) -> None:
        """Make a topic with these replicas of each partition."""
        self.append(
            self.controller.create_topic(
                name,
                partitions=-1,
                replication_factor=-1,
                assignments=list(enumerate(replicas)),
                configs=configs,
            )
        )

    def set(self, name: str, value: str | None, topic: str = "a") -> None:
        self.append([ConfigRecord(resource_type=2, resource_name=topic, name=name, value=value)])

    def partition(self, number: int = 0, topic: str = "a") -> Partition:
        return self.image.topics[topic].partitions[number]

    @property
    def state(self) -> tuple[int, list[int], list[int]]:
        """Leader, ISR and ELR of the first partition."""
        partition = self.partition()
        return partition.leader, partition.isr, partition.elr

    def alter_request(
        self, isr: Sequence[int], number: int = 0, topic: str = "a", **more: Any
    ) -> AlterPartitionRequest:
        """Return what the leader of a partition would say; more: fields of the request or of its only partition."""
        part = AlterPartitionRequest.TopicData.PartitionData
        partition = self.partition(number, topic)
        sender = more.pop("broker_id", partition.leader)
        registered = self.image.brokers.get(sender)
        epoch = more.pop("broker_epoch", -1 if registered is None else registered.broker_epoch)
        epochs = more.pop("epochs", {})
        values: dict[str, Any] = {
            "partition_index": number,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "new_isr": list(isr),
            "new_isr_with_epochs": [
                part.BrokerState(
                    broker_id=broker,
                    broker_epoch=epochs.get(
                        broker, self.image.brokers[broker].broker_epoch if broker in self.image.brokers else 0
                    ),
                )
                for broker in isr
            ],
            "leader_recovery_state": partition.leader_recovery_state if len(isr) < 2 else 0,
        }
        names = AlterPartitionRequest.TopicData(
            topic_id=more.pop("topic_id", self.image.topics[topic].id),
            topic_name=topic,
            partitions=[part(**{**values, **more})],
        )
        return AlterPartitionRequest(broker_id=sender, broker_epoch=epoch, topics=[names])

    def alter(self, isr: Sequence[int], number: int = 0, version: int = 3, **more: Any) -> Any:
        """Propose an ISR as the leader, and return the answer for the partition."""
        records, response = alter_partition(self.controller, self.alter_request(isr, number, **more), version)
        self.append(records)
        assert not response.error_code, response
        return response.topics[0].partitions[0]

    def alter_as(self, request: AlterPartitionRequest, version: int = 3) -> AlterPartitionResponse:
        records, response = alter_partition(self.controller, request, version)
        self.append(records)
        return response

    def elect(self, kind: int, *numbers: int, topic: str = "a") -> list[int]:
        """Ask for elections, and return the error codes."""
        response = self.elect_as(elect_request(kind, {topic: numbers or (0,)}))
        return [each.error_code for each in response.replica_election_results[0].partition_result]

    def elect_as(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        records, response = elect_leaders(self.controller, request)
        self.append(records)
        return response

    def reassign(self, replicas: Sequence[int] | None, number: int = 0, **more: Any) -> tuple[int, str | None]:
        """Ask for a move, or its end, and return the error of the partition."""
        response = self.reassign_as(reassign_request(replicas, number, **more))
        answer = response.responses[0].partitions[0]
        return answer.error_code, answer.error_message

    def reassign_as(self, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
        records, response = alter_reassignments(self.controller, request)
        self.append(records)
        return response


def elect_request(kind: int, partitions: Mapping[str, Sequence[int]] | None) -> ElectLeadersRequest:
    topics = None
    if partitions is not None:
        topics = [
            ElectLeadersRequest.TopicPartitions(topic=topic, partitions=list(numbers))
            for topic, numbers in partitions.items()
        ]
    return ElectLeadersRequest(election_type=kind, topic_partitions=topics)


def reassign_request(
    replicas: Sequence[int] | None, number: int = 0, topic: str = "a", *, may_resize: bool = True
) -> AlterPartitionReassignmentsRequest:
    topics = AlterPartitionReassignmentsRequest.ReassignableTopic
    part = topics.ReassignablePartition(partition_index=number, replicas=None if replicas is None else list(replicas))
    return AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_resize, topics=[topics(name=topic, partitions=[part])]
    )

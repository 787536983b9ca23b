"""What an administrator wants of a cluster: topics, settings, leaders, and where replicas are.

Each goes to the controller, which must be running, and is decided when the call returns; brokers learn of it as they
fetch the metadata.
"""

from __future__ import annotations

from minibroker.controller.elections import elect_leaders
from minibroker.controller.partition_change import ONLINE, PartitionChange
from minibroker.controller.reassignment import alter_reassignments
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from minibroker.protocol.messages.elect_leaders import ElectLeadersRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from minibroker.cluster.controller_server import ControllerNode
    from minibroker.metadata.image import Partition


class ClusterAdmin:
    """What a Cluster can be asked for as its administrator."""

    controller: ControllerNode

    def running_controller(self) -> ControllerNode:
        """Return the controller, or raise for one that does not run."""
        raise NotImplementedError

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        *,
        configs: Mapping[str, str] | None = None,
        assignments: Sequence[Sequence[int]] = (),
    ) -> None:
        """Make a topic. assignments: brokers of each partition, the preferred leader first."""
        controller = self.running_controller()
        config = controller.config
        controller.change(
            controller.controller.create_topic(
                name,
                partitions=-1 if assignments else partitions,
                replication_factor=-1 if assignments else replication_factor,
                assignments=list(enumerate(assignments)),
                configs=configs,
                default_partitions=config["num.partitions"],
                default_replication_factor=config["default.replication.factor"],
            )
        )

    def delete_topic(self, name: str) -> None:
        controller = self.running_controller()
        controller.change(controller.controller.delete_topic(name=name))

    def alter_topic(self, name: str, configs: Mapping[str, str | None]) -> None:
        """Make settings of a topic, or take back those that are None."""
        controller = self.running_controller()
        controller.change(controller.controller.alter_configs(2, name, configs))

    def elect(self, topic: str, partition: int = 0, *, unclean: bool = False) -> None:
        """Give a partition to its preferred leader; unclean: to any live replica, where nobody leads."""
        asked = [ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[partition])]
        request = ElectLeadersRequest(election_type=int(unclean), topic_partitions=asked, timeout_ms=0)
        controller = self.running_controller()
        records, response = elect_leaders(controller.controller, request)
        result = response.replica_election_results[0].partition_result[0]
        if result.error_code:
            raise KafkaError(Error(result.error_code), result.error_message or "")
        controller.change(records)

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Let a replica that is in sync lead."""
        controller = self.running_controller()
        found = controller.controller.get_topic(topic)
        before = self.partition(topic, partition)
        if broker not in before.isr:
            raise KafkaError(
                Error.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                f"broker {broker} is not in sync: {', '.join(map(str, before.isr)) or 'nobody'} is",
            )
        if before.leader == broker:
            return
        change = PartitionChange(
            controller.controller, found, before, election=ONLINE, is_alive=lambda each: each == broker
        )
        record = change.record()
        controller.change([] if record is None else [record])

    def reassign(self, topic: str, partition: int, replicas: Sequence[int] | None) -> None:
        """Move the replicas of a partition to these brokers; None gives up a move."""
        asked = AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition(
            partition_index=partition, replicas=None if replicas is None else list(replicas)
        )
        request = AlterPartitionReassignmentsRequest(
            topics=[AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[asked])]
        )
        controller = self.running_controller()
        records, response = alter_reassignments(controller.controller, request)
        result = response.responses[0].partitions[0]
        if result.error_code:
            raise KafkaError(Error(result.error_code), result.error_message or "")
        controller.change(records)

    def partition(self, topic: str, partition: int) -> Partition:
        """Return a partition as the controller has it."""
        found = self.controller.controller.get_topic(topic)
        if not 0 <= partition < len(found.partitions):
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition} of {topic!r}")
        return found.partitions[partition]

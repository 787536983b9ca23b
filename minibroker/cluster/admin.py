"""What an administrator wants of a cluster: topics, settings, leaders, and where replicas are.

Each goes to the controller, which must be running, and is decided when the call returns; brokers learn of it as they
fetch the metadata.
"""

from __future__ import annotations

from collections.abc import Sequence

from minibroker.cluster.nodes import Nodes
from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT = -1  # as many as the settings say


class ClusterAdmin(Nodes):
    """Nodes, and their administrator's requests."""

    def create_topic(
        self,
        /,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        *,
        assignments: Sequence[Sequence[int]] = (),
        **configs: object,
    ) -> None:
        """Make a topic; settings have _ for each dot: cleanup_policy="compact".

        Without the two numbers it has num.partitions, and default.replication.factor, which is min(3, brokers) unless
        set. assignments: the brokers of each partition, the preferred leader first, in place of the two.
        """
        from minibroker.config.sources import setting_texts

        controller = self.running_controller()
        config = controller.config
        controller.change(
            controller.controller.create_topic(
                name,
                partitions=DEFAULT if assignments or partitions is None else partitions,
                replication_factor=DEFAULT if assignments or replication_factor is None else replication_factor,
                assignments=list(enumerate(assignments)),
                configs=setting_texts(configs),
                default_partitions=config["num.partitions"],
                default_replication_factor=config["default.replication.factor"],
            )
        )

    def instances(self) -> list[dict[str, Any]]:
        """Return a row for each instance and broker: promised, share, what is used, what is stored."""
        controller = self.running_controller()
        return controller.masters.rows()

    def delete_topic(self, name: str) -> None:
        """Delete a topic; KafkaError if there is none."""
        controller = self.running_controller()
        controller.change(controller.controller.delete_topic(name=name))

    def alter_topic(self, /, name: str, **configs: object) -> None:
        """Change settings of a topic, written as for create_topic; None takes one back."""
        from minibroker.config.sources import setting_texts
        from minibroker.metadata.image import TOPIC

        controller = self.running_controller()
        given = setting_texts({key: value for key, value in configs.items() if value is not None})
        gone = dict.fromkeys(setting_texts({key: "" for key, value in configs.items() if value is None}))
        controller.change(controller.controller.alter_configs(TOPIC, name, {**given, **gone}))

    def elect(self, topic: str, partition: int = 0, *, unclean: bool = False) -> None:
        """Give a partition to its preferred leader; unclean: to any live replica, where nobody leads."""
        from minibroker.controller.elections import elect_leaders
        from minibroker.protocol.messages.elect_leaders import ElectLeadersRequest

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
        from minibroker.controller.partition_change import ONLINE, PartitionChange

        controller = self.running_controller()
        found = self.topic(topic)
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
        """Begin to move a partition to these brokers; without any, give up a move.

        replicas: None gives it up. `wait_in_sync` returns when it is done.
        """
        from minibroker.controller.reassignment import alter_reassignments
        from minibroker.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest

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

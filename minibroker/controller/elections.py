"""Elections that somebody asks for: an administrator (ElectLeaders), or the controller when it is time.

Type 0 gives a partition back to its preferred leader, the first replica, if that is in sync: after a restart of a
broker all its leaders are elsewhere, and nothing else brings them back. Type 1 gives a partition without a leader to
any live replica, which loses what only others had.
"""

from __future__ import annotations

from collections.abc import Iterable

from minibroker.controller.controller import Controller, bounded
from minibroker.controller.partition_change import PREFERRED, UNCLEAN, PartitionChange, partitions_where
from minibroker.errors import Error, KafkaError
from minibroker.metadata.image import NO_LEADER, Partition, Topic
from minibroker.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from minibroker.stored.kinds import MetadataRecord

Result = ElectLeadersResponse.ReplicaElectionResult
PartitionResult = Result.PartitionResult

TYPES = {0: PREFERRED, 1: UNCLEAN}
NOT_NEEDED = "Leader election not needed for topic partition."
ELECTIONS_MAX = 1000  # of one balancing


def elect_leaders(
    controller: Controller, request: ElectLeadersRequest
) -> tuple[list[MetadataRecord], ElectLeadersResponse]:
    """Return the records of elections, and for each partition whether it has a new leader."""
    election = TYPES.get(request.election_type)
    if election is None:
        return [], _refused(request)
    records: list[MetadataRecord] = []
    results = []
    if request.topic_partitions is None:
        # Of all partitions only those are named that had to be looked at.
        for topic in controller.image.topics.values():
            answers = [_elect(controller, topic.name, each.id, election, records) for each in topic.partitions]
            needed = [answer for answer in answers if answer.error_code != Error.ELECTION_NOT_NEEDED]
            results.append(Result(topic=topic.name, partition_result=needed))
    else:
        for asked in request.topic_partitions:
            answers = [_elect(controller, asked.topic, number, election, records) for number in asked.partitions]
            results.append(Result(topic=asked.topic, partition_result=answers))
    try:
        bounded(records)
    except KafkaError as error:
        return [], ElectLeadersResponse(throttle_time_ms=0, error_code=error.code, replica_election_results=[])
    return records, ElectLeadersResponse(throttle_time_ms=0, error_code=Error.NONE, replica_election_results=results)


def _refused(request: ElectLeadersRequest) -> ElectLeadersResponse:
    message = f"Unknown election type {request.election_type}"
    results = [
        Result(
            topic=topic.topic,
            partition_result=[
                PartitionResult(partition_id=number, error_code=Error.INVALID_REQUEST, error_message=message)
                for number in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    # A request that names nothing gets no error.
    code = Error.INVALID_REQUEST if request.topic_partitions is None or results else Error.NONE
    return ElectLeadersResponse(throttle_time_ms=0, error_code=code, replica_election_results=results)


def _elect(
    controller: Controller, name: str, number: int, election: str, records: list[MetadataRecord]
) -> PartitionResult:
    try:
        topic = controller.image.topics.get(name)
        if topic is None:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
        if not 0 <= number < len(topic.partitions):
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}")
        partition = topic.partitions[number]
        if _has_leader(partition, election):  # the usual answer, and there may be thousands: it is not raised
            return PartitionResult(partition_id=number, error_code=Error.ELECTION_NOT_NEEDED, error_message=NOT_NEEDED)
        records.append(_elected(controller, topic, partition, election))
    except KafkaError as error:
        return PartitionResult(partition_id=number, error_code=error.code, error_message=error.message)
    return PartitionResult(partition_id=number, error_code=Error.NONE, error_message=None)


def _has_leader(partition: Partition, election: str) -> bool:
    """Whether a partition has the leader already that an election could give it."""
    return partition.leader == partition.replicas[0] if election == PREFERRED else partition.leader != NO_LEADER


def _elected(controller: Controller, topic: Topic, partition: Partition, election: str) -> MetadataRecord:
    """Return the record of the leader that a partition has not got yet, preferred or unclean."""
    record = PartitionChange(controller, topic, partition, election=election).record()
    if record is None:
        if election == PREFERRED:
            raise KafkaError(Error.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
        raise KafkaError(Error.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available.")
    return record


# What the controller does by itself


def balance_leaders(controller: Controller) -> list[MetadataRecord]:
    """Return the elections that give partitions back to their preferred leaders, as far as these are in sync.

    To be done every leader.imbalance.check.interval.seconds, if auto.leader.rebalance.enable.
    """
    astray = partitions_where(controller.image, lambda partition: partition.leader != partition.replicas[0])
    return _records(PartitionChange(controller, *each, election=PREFERRED) for each in astray)


def elect_uncleanly(controller: Controller) -> list[MetadataRecord]:
    """Return unclean elections for partitions without a leader whose topics allow them.

    To be done now and then: without it a setting that comes after the last leader has gone would have no effect.
    """
    leaderless = partitions_where(controller.image, lambda partition: partition.leader == NO_LEADER)
    return _records(
        PartitionChange(controller, topic, partition, election=UNCLEAN)
        for topic, partition in leaderless
        if controller.elects_uncleanly(topic)
    )


def _records(changes: Iterable[PartitionChange]) -> list[MetadataRecord]:
    found = (change.record() for change in changes)
    return [record for record in found if record is not None][:ELECTIONS_MAX]

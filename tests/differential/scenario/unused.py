"""What nobody has set up: access rules, logins, tokens, quotas, and the quorum of one controller."""

from __future__ import annotations

from minibroker.protocol.headers import Request
from minibroker.protocol.messages.add_raft_voter import AddRaftVoterRequest
from minibroker.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from minibroker.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from minibroker.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from minibroker.protocol.messages.create_acls import CreateAclsRequest
from minibroker.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from minibroker.protocol.messages.delete_acls import DeleteAclsRequest
from minibroker.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from minibroker.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from minibroker.protocol.messages.describe_acls import DescribeAclsRequest
from minibroker.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from minibroker.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from minibroker.protocol.messages.describe_quorum import DescribeQuorumRequest
from minibroker.protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from minibroker.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from minibroker.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from minibroker.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from minibroker.protocol.messages.list_config_resources import ListConfigResourcesRequest
from minibroker.protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from minibroker.protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from minibroker.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from minibroker.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from minibroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from minibroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from minibroker.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from minibroker.protocol.messages.share_fetch import ShareFetchRequest
from minibroker.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from minibroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from minibroker.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from minibroker.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from minibroker.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from minibroker.protocol.messages.unregister_broker import UnregisterBrokerRequest
from minibroker.protocol.messages.unregister_controller import UnregisterControllerRequest
from minibroker.protocol.messages.update_features import UpdateFeaturesRequest
from minibroker.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from tests.differential.play import Play

TOPIC, CLUSTER, LITERAL = 2, 4, 3
ANY, READ, ALLOW = 1, 3, 3
DIRECTORY = bytes(range(16))
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


def ask_all(play: Play) -> None:
    """Ask for everything that is not in use."""
    ask_for_access_rules(play)
    ask_for_logins(play)
    ask_for_quotas(play)
    ask_of_the_quorum(play)
    change_features(play)
    ask_groups_that_are_switched_off(play)
    ask_for_config_resources(play)
    move_between_directories(play)


def ask_for_access_rules(play: Play) -> None:
    Creation, Filter = CreateAclsRequest.AclCreation, DeleteAclsRequest.DeleteAclsFilter
    for version in play.versions(DescribeAclsRequest):
        for resource in (ANY, TOPIC, CLUSTER):
            request = DescribeAclsRequest(
                resource_type_filter=resource,
                resource_name_filter=None,
                pattern_type_filter=LITERAL,
                principal_filter=None,
                host_filter=None,
                operation=ANY,
                permission_type=ANY,
            )
            play.ask(f"access rules of {resource}", request, version)
    for version in play.versions(CreateAclsRequest):
        for count in (0, 2):
            rules = [
                Creation(
                    resource_type=TOPIC,
                    resource_name="t",
                    principal="User:a",
                    host="*",
                    operation=READ,
                    permission_type=ALLOW,
                )
            ] * count
            play.ask(f"{count} new access rules", CreateAclsRequest(creations=rules), version)
    for version in play.versions(DeleteAclsRequest):
        for count in (0, 2):
            filters = [
                Filter(
                    resource_type_filter=TOPIC,
                    resource_name_filter="t",
                    principal_filter=None,
                    host_filter=None,
                    operation=ANY,
                    permission_type=ANY,
                )
            ] * count
            play.ask(f"{count} access rules go", DeleteAclsRequest(filters=filters), version)


def ask_for_logins(play: Play) -> None:
    for version in play.versions(SaslHandshakeRequest):
        for mechanism in ("PLAIN", "SCRAM-SHA-256", ""):
            play.ask(f"login by {mechanism!r}", SaslHandshakeRequest(mechanism=mechanism), version)
    for version in play.versions(SaslAuthenticateRequest):
        play.ask("a password", SaslAuthenticateRequest(auth_bytes=b"\0user\0password"), version)
    for version in play.versions(CreateDelegationTokenRequest):
        play.ask("a new token", CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), version)
        Renewer = CreateDelegationTokenRequest.CreatableRenewers
        owned = CreateDelegationTokenRequest(
            renewers=[Renewer(principal_type="Group", principal_name="g")], max_lifetime_ms=5
        )
        play.ask("a new token with a renewer", owned, version)
    for version in play.versions(RenewDelegationTokenRequest):
        play.ask("a token lives longer", RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=5), version)
    for version in play.versions(ExpireDelegationTokenRequest):
        play.ask("a token ends", ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1), version)
    for version in play.versions(DescribeDelegationTokenRequest):
        play.ask("all tokens", DescribeDelegationTokenRequest(owners=None), version)
    User = DescribeUserScramCredentialsRequest.UserName
    for version in play.versions(DescribeUserScramCredentialsRequest):
        for names in (None, [], ["a"], ["a", "b", "a"], [""]):
            users = None if names is None else [User(name=name) for name in names]
            play.ask(f"passwords of {names}", DescribeUserScramCredentialsRequest(users=users), version)
    Gone = AlterUserScramCredentialsRequest.ScramCredentialDeletion
    New = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    for version in play.versions(AlterUserScramCredentialsRequest):
        play.ask("no passwords", AlterUserScramCredentialsRequest(deletions=[], upsertions=[]), version)
        for name, mechanism in (("a", 1), ("a", 0), ("", 1)):
            gone = AlterUserScramCredentialsRequest(deletions=[Gone(name=name, mechanism=mechanism)], upsertions=[])
            play.ask(f"the password of {name!r} for {mechanism} goes", gone, version)
        bad = New(name="a", mechanism=0, iterations=4096, salt=b"salt", salted_password=b"x" * 32)
        play.ask(
            "a password for no mechanism", AlterUserScramCredentialsRequest(deletions=[], upsertions=[bad]), version
        )


def ask_for_quotas(play: Play) -> None:
    Component = DescribeClientQuotasRequest.ComponentData
    asked = {
        "all": [],
        "of users": [("user", 2, None)],
        "of one": [("client-id", 0, "c")],
        "of the default": [("ip", 1, None)],
        "of a user's client": [("user", 0, "u"), ("client-id", 0, "c")],
        "of nothing": [("", 2, None)],
        "of what is not": [("group", 2, None)],
        "twice": [("user", 2, None), ("user", 2, None)],
        "of an address and a user": [("user", 2, None), ("ip", 2, None)],
        "by a match without a name": [("user", 0, None)],
        "by a name without a match": [("user", 1, "u")],
        "by an unknown match": [("user", 7, None)],
    }
    for version in play.versions(DescribeClientQuotasRequest):
        for what, rows in asked.items():
            components = [Component(entity_type=kind, match_type=match, match=name) for kind, match, name in rows]
            for strict in (False, True):
                request = DescribeClientQuotasRequest(components=components, strict=strict)
                play.ask(f"quotas: {what}, strict={strict}", request, version)


def ask_of_the_quorum(play: Play) -> None:
    Topic = DescribeQuorumRequest.TopicData
    asked = {
        "of the metadata": [("__cluster_metadata", [0])],
        "of nothing": [],
        "of another partition": [("__cluster_metadata", [1])],
        "of another topic": [("t", [0])],
        "of two": [("__cluster_metadata", [0]), ("t", [0])],
        "of two partitions": [("__cluster_metadata", [0, 1])],
    }
    for version in play.versions(DescribeQuorumRequest):
        for what, rows in asked.items():
            topics = [
                Topic(topic_name=name, partitions=[Topic.PartitionData(partition_index=index) for index in partitions])
                for name, partitions in rows
            ]
            play.ask(f"quorum: {what}", DescribeQuorumRequest(topics=topics), version)
    for version in play.versions(UnregisterBrokerRequest):
        play.ask("a broker that is not there goes", UnregisterBrokerRequest(broker_id=77), version)
    for version in play.versions(UnregisterControllerRequest):
        play.ask("a controller that is not there goes", UnregisterControllerRequest(controller_id=77), version)
    for version in play.versions(AddRaftVoterRequest):
        Listener = AddRaftVoterRequest.Listener
        for cluster_id in (None, "another"):
            request = AddRaftVoterRequest(
                cluster_id=cluster_id,
                timeout_ms=1000,
                voter_id=7,
                voter_directory_id=DIRECTORY,
                listeners=[Listener(name="CONTROLLER", host="localhost", port=1)],
            )
            play.ask(f"another voter of cluster {cluster_id}", request, version)
    for version in play.versions(RemoveRaftVoterRequest):
        for cluster_id in (None, "another"):
            request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=7, voter_directory_id=DIRECTORY)
            play.ask(f"a voter of cluster {cluster_id} goes", request, version)


def change_features(play: Play) -> None:
    Update = UpdateFeaturesRequest.FeatureUpdateKey
    asked = {
        "none": [],
        "unknown": [("no.such.feature", 1, 1)],
        "to a level that is too high": [("metadata.version", 99, 1)],
        "below what is possible": [("metadata.version", 1, 3)],
        "down without saying so": [("group.version", 0, 1)],
        "one twice": [("group.version", 1, 1), ("group.version", 1, 1)],
        "one that is, one that is not": [("group.version", 1, 1), ("no.such.feature", 1, 1)],
        "by an unknown kind": [("group.version", 1, 9)],
        "without a name": [("", 1, 1)],
    }
    for version in play.versions(UpdateFeaturesRequest):
        for what, rows in asked.items():
            for validate_only in (False, True) if version else (False,):
                updates = [
                    Update(feature=name, max_version_level=level, upgrade_type=kind if version else 1)
                    for name, level, kind in rows
                ]
                request = UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)
                play.ask(f"features: {what}, validate_only={validate_only}", request, version)


def ask_for_config_resources(play: Play) -> None:
    for version in play.versions(ListConfigResourcesRequest):
        for kinds in ([], [2], [4], [8], [16], [32], [2, 16], [5], [0]) if version else ([],):
            request = ListConfigResourcesRequest(resource_types=list(kinds))
            play.ask(f"config resources of {kinds}", request, version)


def move_between_directories(play: Play) -> None:
    Directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    Topic = Directory.AlterReplicaLogDirTopic
    for version in play.versions(AlterReplicaLogDirsRequest):
        for path in ("/no/such/directory", "relative"):
            topics = [Topic(name="no-such-topic", partitions=[0, 1])]
            request = AlterReplicaLogDirsRequest(dirs=[Directory(path=path, topics=topics)])
            play.ask(f"partitions move to {path}", request, version)


def ask_groups_that_are_switched_off(play: Play) -> None:
    """Ask share and streams groups, whose features are taken back first where they are finalized."""
    Update = UpdateFeaturesRequest.FeatureUpdateKey
    for feature in ("share.version", "streams.version"):
        off = Update(feature=feature, max_version_level=0, upgrade_type=2)
        play.try_both(UpdateFeaturesRequest(feature_updates=[off]))
    Fetched = ShareFetchRequest.FetchTopic
    Acknowledged = ShareAcknowledgeRequest.AcknowledgeTopic
    OffsetsGroup = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    OffsetsTopic = OffsetsGroup.DescribeShareGroupOffsetsRequestTopic
    Altered = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    Deleted = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
    Described = StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescription
    asked: list[Request] = [
        ShareGroupHeartbeatRequest(group_id="g", member_id=MEMBER, member_epoch=0, subscribed_topic_names=["t"]),
        ShareGroupDescribeRequest(group_ids=["g", "h", ""], include_authorized_operations=False),
        ShareFetchRequest(
            group_id="g",
            member_id=MEMBER,
            share_session_epoch=0,
            max_wait_ms=0,
            min_bytes=0,
            topics=[
                Fetched(
                    topic_id=DIRECTORY,
                    partitions=[Fetched.FetchPartition(partition_index=0, acknowledgement_batches=[])],
                )
            ],
            forgotten_topics_data=[],
        ),
        ShareAcknowledgeRequest(
            group_id="g",
            member_id=MEMBER,
            share_session_epoch=1,
            topics=[
                Acknowledged(
                    topic_id=DIRECTORY,
                    partitions=[Acknowledged.AcknowledgePartition(partition_index=0, acknowledgement_batches=[])],
                )
            ],
        ),
        StreamsGroupHeartbeatRequest(group_id="g", member_id=MEMBER, member_epoch=0, endpoint_information_epoch=0),
        StreamsGroupDescribeRequest(group_ids=["g", "h", ""], include_authorized_operations=False),
        DescribeShareGroupOffsetsRequest(
            groups=[
                OffsetsGroup(group_id="g", topics=None),
                OffsetsGroup(group_id="h", topics=[OffsetsTopic(topic_name="t", partitions=[0, 1])]),
            ]
        ),
        AlterShareGroupOffsetsRequest(
            group_id="g",
            topics=[
                Altered(
                    topic_name="t",
                    partitions=[Altered.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)],
                )
            ],
        ),
        DeleteShareGroupOffsetsRequest(group_id="g", topics=[Deleted(topic_name="t")]),
        StreamsGroupTopologyDescriptionUpdateRequest(
            group_id="g",
            member_id="m",
            topology_epoch=0,
            topology_description=Described(subtopologies=[], global_stores=[]),
        ),
        *_questions_about_state(),
    ]
    for request in asked:
        for version in play.versions(type(request), lowest=int(play.newest(type(request)) > 0 and request.api < 80)):
            play.ask(f"switched off: {type(request).__name__}", request, version)


def _questions_about_state() -> list[Request]:
    """Return what brokers ask the coordinator of share groups' state."""
    Begun = InitializeShareGroupStateRequest.InitializeStateData
    Read = ReadShareGroupStateRequest.ReadStateData
    Written = WriteShareGroupStateRequest.WriteStateData
    Gone = DeleteShareGroupStateRequest.DeleteStateData
    Summed = ReadShareGroupStateSummaryRequest.ReadStateSummaryData
    written = Written.PartitionData(partition=0, state_epoch=0, leader_epoch=0, start_offset=0, state_batches=[])
    begun = Begun.PartitionData(partition=0, state_epoch=0, start_offset=0)
    return [
        InitializeShareGroupStateRequest(group_id="g", topics=[Begun(topic_id=DIRECTORY, partitions=[begun])]),
        ReadShareGroupStateRequest(
            group_id="g",
            topics=[Read(topic_id=DIRECTORY, partitions=[Read.PartitionData(partition=0, leader_epoch=0)])],
        ),
        WriteShareGroupStateRequest(group_id="g", topics=[Written(topic_id=DIRECTORY, partitions=[written])]),
        DeleteShareGroupStateRequest(
            group_id="g", topics=[Gone(topic_id=DIRECTORY, partitions=[Gone.PartitionData(partition=0)])]
        ),
        ReadShareGroupStateSummaryRequest(
            group_id="g",
            topics=[Summed(topic_id=DIRECTORY, partitions=[Summed.PartitionData(partition=0, leader_epoch=0)])],
        ),
    ]

"""Create topics. Admin clients send it, and brokers for topics that are created automatically; the controller acts.

v4: -1 stands for the broker's defaults (KIP-464), v5: flexible, the answer carries the configs (KIP-525), v6: may
answer 89, THROTTLING_QUOTA_EXCEEDED (KIP-599), v7: topic ids (KIP-516).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, NO_ID, Array, Bool, Int8, Int16, Int32, String, Uuid, since


class CreateTopicsRequest(Request, api=19, versions="0-7", flexible="5+"):
    """Describe the topics to create."""

    topics: Array[CreatableTopic]
    timeout_ms: Int32 = 60000  # how long the controller may take; the topics may come into being even if it is exceeded
    validate_only: Bool = since("1+", default=False)  # true: check everything, create nothing

    class CreatableTopic(Struct):
        name: String
        num_partitions: Int32  # -1: the broker's default (v4+), or assignments are given
        replication_factor: Int16  # -1: the broker's default (v4+), or assignments are given
        assignments: Array[CreatableReplicaAssignment]  # where each partition lives; empty: the controller places them
        configs: Array[CreatableTopicConfig]  # settings that differ from the broker's

        class CreatableReplicaAssignment(Struct):
            partition_index: Int32
            broker_ids: Array[Int32]  # the replicas; the first is the preferred leader

        class CreatableTopicConfig(Struct):
            name: String  # such as cleanup.policy
            value: String | None


class CreateTopicsResponse(Response, api=19, versions="0-7", flexible="5+"):
    """Give one result for each topic."""

    throttle_time_ms: Int32 = since("2+", default=0)  # how long the quota of the client makes it wait, 0: not at all
    topics: Array[CreatableTopicResult]

    class CreatableTopicResult(Struct):
        name: String
        topic_id: Uuid = since("7+", default=NO_ID)
        # 36: exists, 17: bad name, 37: bad partition count, 38: too many replicas, 39: bad assignment, 40: bad config
        error_code: Int16
        error_message: String | None = since("1+", default="")  # for people to read; null: no error
        # 29: the caller may not see the configs, so the details below are not given
        topic_config_error_code: Int16 = since("5+", default=0, tag=0)
        num_partitions: Int32 = since("5+", default=-1)  # -1: not told
        replication_factor: Int16 = since("5+", default=-1)  # -1: not told
        # all settings in force; null: not told
        configs: Array[CreatableTopicConfigs] | None = since("5+", default=EMPTY)

        class CreatableTopicConfigs(Struct):
            name: String
            value: String | None  # null for a sensitive one
            read_only: Bool  # true: cannot be changed while the broker runs
            # 1: topic, 2: this broker, 3: all brokers, 4: broker's file, 5: default, -1: not given
            config_source: Int8 = -1
            is_sensitive: Bool  # true: a secret, its value is not shown

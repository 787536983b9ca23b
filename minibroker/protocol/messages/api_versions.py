"""Agree on versions (KIP-35): which APIs a broker has, and in which versions.

The first request on nearly every connection. A broker that does not know the version asked in answers v0 with error 35,
and the client asks again; the answer's header is v0 always, so that anyone can read it.
v3: flexible, client name (KIP-511), features (KIP-584); v4: features that start at 0; v5: whom the client means.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, Array, Bool, Int16, Int32, Int64, String, since


class ApiVersionsRequest(Request, api=18, versions="0-5", flexible="3+"):
    """Introduce the client and ask for the list."""

    # letters, digits, - and . only, such as apache-kafka-java; otherwise error 42
    client_software_name: String = since("3+", default="")
    client_software_version: String = since("3+", default="")  # letters, digits, - and . only; otherwise error 42
    # cluster the client expects; error 129 if this is another one; null: not checked
    cluster_id: String | None = since("5+", default=None)
    # broker the client expects; error 129 if this is another one; -1: not checked
    node_id: Int32 = since("5+", default=-1)


class ApiVersionsResponse(Response, api=18, header_0="0+", versions="0-5", flexible="3+"):
    """List the APIs and features; a client takes the highest version that both sides know."""

    # 35: version not known, api_keys then names only ApiVersions itself; 129: look up the brokers anew
    error_code: Int16
    api_keys: Array[ApiVersion]
    throttle_time_ms: Int32 = since("1+", default=0)  # how long the quota of the client makes it wait, 0: not at all
    # what this node could do; until v3 without features whose min_version is 0
    supported_features: Array[SupportedFeatureKey] = since("3+", default=EMPTY, tag=0)
    # grows with each change of finalized_features; -1: they are not known
    finalized_features_epoch: Int64 = since("3+", default=-1, tag=1)
    # what the cluster as a whole has switched on
    finalized_features: Array[FinalizedFeatureKey] = since("3+", default=EMPTY, tag=2)
    # true: a KRaft controller that is configured to take over a ZooKeeper cluster (KIP-866)
    zk_migration_ready: Bool = since("3+", default=False, tag=3)

    class ApiVersion(Struct):
        api_key: Int16  # number of the API, such as 0 for Produce
        min_version: Int16  # inclusive
        max_version: Int16  # inclusive

    class SupportedFeatureKey(Struct):
        name: String  # such as metadata.version or transaction.version
        min_version: Int16
        max_version: Int16  # inclusive

    class FinalizedFeatureKey(Struct):
        name: String
        max_version_level: Int16  # the level in force
        min_version_level: Int16  # Kafka gives the same level as max_version_level

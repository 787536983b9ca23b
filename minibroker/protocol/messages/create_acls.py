"""CreateAcls: add access control entries.

Sent by admin tools; a broker forwards it to the controller. Without an authorizer every entry fails with
SECURITY_DISABLED. v1: pattern type (KIP-290), v2: flexible, v3: resource type USER (KIP-373).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int8, Int16, Int32, String, since


class CreateAclsRequest(Request, api=30, versions="0-3", flexible="2+"):
    """List the entries to add; each succeeds or fails on its own."""

    creations: Array[AclCreation]

    class AclCreation(Struct):
        resource_type: Int8  # 2: topic, 3: group, 4: cluster, 5: transactional id, 6: delegation token, 7: user (v3+)
        resource_name: String  # "*" stands for all; the cluster is always "kafka-cluster"
        resource_pattern_type: Int8 = since("1+", default=3)  # 3: literal name, 4: prefix; v0 means literal
        principal: String  # type and name, for example "User:alice"; "User:*" is everybody
        host: String  # client address; "*": any
        operation: Int8  # 2: all, 3: read, 4: write, 5: create, 6: delete, 7: alter, 8: describe, ... (AclOperation)
        permission_type: Int8  # 2: deny, 3: allow; a matching deny always wins


class CreateAclsResponse(Response, api=30, versions="0-3", flexible="2+"):
    """One result per entry, in the order of the request."""

    throttle_time_ms: Int32  # how long a quota makes the client wait before its next request; 0: not at all
    results: Array[AclCreationResult]

    class AclCreationResult(Struct):
        error_code: Int16
        error_message: String | None  # null: no error or no text

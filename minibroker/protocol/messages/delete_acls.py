"""DeleteAcls: remove every access control entry that matches a filter.

Sent by admin tools; a broker forwards it to the controller. Without an authorizer the answer is
SECURITY_DISABLED. v1: pattern type (KIP-290), v2: flexible, v3: resource type USER (KIP-373).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int8, Int16, Int32, String, since


class DeleteAclsRequest(Request, api=31, versions="0-3", flexible="2+"):
    """List filters; an entry goes if all parts of any one filter match."""

    filters: Array[DeleteAclsFilter]

    class DeleteAclsFilter(Struct):
        # 1: any, 2: topic, 3: group, 4: cluster, 5: transactional id, 6: delegation token, 7: user (v3+)
        resource_type_filter: Int8
        resource_name_filter: String | None  # null: any name
        # 1: any, 2: every pattern that would apply to the name, 3: literal, 4: prefix
        pattern_type_filter: Int8 = since("1+", default=3)
        principal_filter: String | None  # for example "User:alice"; null: any
        host_filter: String | None  # null: any host
        operation: Int8  # 1: any operation; else only entries with exactly this code (AclOperation)
        permission_type: Int8  # 1: any, 2: deny, 3: allow


class DeleteAclsResponse(Response, api=31, versions="0-3", flexible="2+"):
    """For each filter, in order, the entries it matched and whether they were removed."""

    throttle_time_ms: Int32  # how long a quota makes the client wait before its next request; 0: not at all
    filter_results: Array[DeleteAclsFilterResult]

    class DeleteAclsFilterResult(Struct):
        error_code: Int16  # for the filter as a whole
        error_message: String | None  # null: no error or no text
        matching_acls: Array[DeleteAclsMatchingAcl]

        class DeleteAclsMatchingAcl(Struct):
            error_code: Int16  # for the removal of this entry
            error_message: String | None  # null: no error or no text
            resource_type: Int8  # 2: topic, 3: group, 4: cluster, 5: transactional id, 6: delegation token, 7: user
            resource_name: String
            pattern_type: Int8 = since("1+", default=3)  # 3: literal name, 4: prefix
            principal: String
            host: String
            # 2: all, 3: read, 4: write, 5: create, 6: delete, 7: alter, 8: describe, ... (AclOperation)
            operation: Int8
            permission_type: Int8  # 2: deny, 3: allow

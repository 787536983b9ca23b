"""List access rules that match a filter (KIP-140). Admin clients send it to any broker.

v1: pattern types (KIP-290), v2: flexible, v3: rules on users (KIP-373).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int8, Int16, Int32, String, since


class DescribeAclsRequest(Request, api=29, versions="0-3", flexible="2+"):
    """Describe the rules to look for; every part of the filter must match."""

    # 1: any, 2: topic, 3: group, 4: cluster, 5: transactional id, 6: delegation token, 7: user
    resource_type_filter: Int8
    resource_name_filter: String | None  # null: any
    # 1: any, 2: every rule that applies to the name (literal, prefix, or *), 3: literal, 4: prefix
    pattern_type_filter: Int8 = since("1+", default=3)
    principal_filter: String | None  # such as User:alice; null: any
    host_filter: String | None  # null: any
    # 1: any, 2: all, 3: read, 4: write, 5: create, 6: delete, 7: alter, 8: describe, 9: cluster action,
    # 10/11: describe/alter configs, 12: idempotent write, 13/14: create/describe tokens, 15: two-phase commit
    operation: Int8
    permission_type: Int8  # 1: any, 2: deny, 3: allow


class DescribeAclsResponse(Response, api=29, versions="0-3", flexible="2+"):
    """List the rules, grouped by the resource they protect."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16  # 54: the broker has no authorizer, so there are no rules
    error_message: String | None  # for people to read; null: no error
    resources: Array[DescribeAclsResource]

    class DescribeAclsResource(Struct):
        resource_type: Int8  # 2: topic, 3: group, 4: cluster, 5: transactional id, 6: delegation token, 7: user
        resource_name: String  # the whole name, the beginning of names, or * for all, as pattern_type says
        pattern_type: Int8 = since("1+", default=3)  # 3: literal, 4: prefix
        acls: Array[AclDescription]

        class AclDescription(Struct):
            principal: String  # whom the rule is for, such as User:alice or User:*
            host: String  # address the client must come from; *: any
            # 2: all, 3: read, 4: write, 5: create, 6: delete, 7: alter, 8: describe, 9: cluster action,
            # 10/11: describe/alter configs, 12: idempotent write, 13/14: create/describe tokens, 15: two-phase commit
            operation: Int8
            permission_type: Int8  # 2: deny, 3: allow; one denial outweighs any permission

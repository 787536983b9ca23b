"""Access rules: DescribeAcls is answered by any broker, CreateAcls and DeleteAcls by the controller.

Without an authorizer nobody would ask for rules, so nobody is to believe that there are any: SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import Any, Final

from minibroker.broker.dispatch import Context
from minibroker.controller.acls import create_acls as create
from minibroker.controller.acls import delete_acls as delete
from minibroker.controller.acls import find_acls, is_of_filters, rules_in
from minibroker.errors import Error, KafkaError
from minibroker.faults.answers import Fault, refuse_in_pieces
from minibroker.in_pieces import finish
from minibroker.protocol.headers import Request, Response
from minibroker.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from minibroker.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from minibroker.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from minibroker.security.acls import Rule, RuleFilter
from minibroker.turns import Work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from minibroker.in_pieces import InPieces
    from minibroker.stored.kinds import MetadataRecord

    Made = TypeVar("Made")
    Resources = DescribeAclsResponse.DescribeAclsResource

AUTHORIZER: Final = "authorizer.class.name"
DESCRIBE: Final = 29
RULE_US: Final = 3

Described = DescribeAclsResponse.DescribeAclsResource
Created = CreateAclsResponse.AclCreationResult
Deleted = DeleteAclsResponse.DeleteAclsFilterResult
DeletedRule = Deleted.DeleteAclsMatchingAcl


def _is_off(context: Context) -> bool:
    return not context.node.config[AUTHORIZER]


def _refuse(request: Request, context: Context) -> Work[Response]:
    where = " on the broker" if request.api == DESCRIBE else "."
    fault = Fault(Error.SECURITY_DISABLED, f"No Authorizer is configured{where}")
    return refuse_in_pieces(request, request.api, context.api_version, fault, keeps_empty=True)


def describe_acls(request: DescribeAclsRequest, context: Context) -> Work[Response]:
    """List the rules that a filter matches, by what they are for."""
    if _is_off(context):
        return (yield from _refuse(request, context))
    rules = yield from rules_in(context.node.image.acls)
    found = yield from find_acls(rules, _filter_of(request))
    resources: dict[tuple[int, int, str], Resources] = {}
    for rule in found.values():
        resource = resources.get(rule[:3])
        if resource is None:
            resource = resources[rule[:3]] = Described(
                resource_type=rule.resource_type,
                resource_name=rule.resource_name,
                pattern_type=rule.pattern_type,
                acls=[],
            )
        resource.acls.append(
            Described.AclDescription(
                principal=rule.principal, host=rule.host, operation=rule.operation, permission_type=rule.permission
            )
        )
        yield RULE_US
    return DescribeAclsResponse(
        throttle_time_ms=0, error_code=Error.NONE, error_message="", resources=list(resources.values())
    )


def _filter_of(asked: Any) -> RuleFilter:
    return RuleFilter(
        asked.resource_type_filter,
        asked.pattern_type_filter,
        asked.resource_name_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def create_acls(request: CreateAclsRequest, context: Context) -> Work[Response]:
    """Make rules; each wish succeeds or fails for itself."""
    if _is_off(context):
        return (yield from _refuse(request, context))
    rules = []
    for asked in request.creations:
        rules.append(
            Rule(
                asked.resource_type,
                asked.resource_pattern_type,
                asked.resource_name,
                asked.principal,
                asked.host,
                asked.operation,
                asked.permission_type,
            )
        )
        if is_of_filters(rules[-1]):
            fault = Fault(Error.UNKNOWN_SERVER_ERROR, None)  # as Kafka, for all of them
            return (yield from refuse_in_pieces(request, request.api, context.api_version, fault))
        yield RULE_US
    errors = yield from _carry_out(lambda: create(context.node.controller, rules), context)
    results = [
        Created(error_code=Error.NONE, error_message="")
        if error is None
        else Created(error_code=error.code, error_message=error.message)
        for error in errors
    ]
    return CreateAclsResponse(throttle_time_ms=0, results=results)


def _carry_out(
    decide: Callable[[], InPieces[tuple[list[MetadataRecord], list[Made]]]], context: Context
) -> Work[list[Made]]:
    """Write what is decided, all of it together; return what to say of each wish."""
    node, offset = context.node, context.node.image.offset
    records, results = yield from decide()
    prepared: list[MetadataRecord] = yield from node.metadata_log.prepare(records, now_ms=node.clock.now_ms())
    if node.image.offset != offset:  # decided again, in the turn in which it is written
        prepared, results = finish(decide())
    if prepared:
        node.change(prepared)
    return results


def delete_acls(request: DeleteAclsRequest, context: Context) -> Work[Response]:
    """Remove the rules that filters match, all of them together."""
    if _is_off(context):
        return (yield from _refuse(request, context))
    filters = [_filter_of(asked) for asked in request.filters]
    found = yield from _carry_out(lambda: delete(context.node.controller, filters), context)
    results = []
    for each in found:
        if isinstance(each, KafkaError):
            results.append(Deleted(error_code=each.code, error_message=each.message or None, matching_acls=[]))
            continue
        results.append(
            Deleted(error_code=Error.NONE, error_message=None, matching_acls=[_deleted(rule) for rule in each.values()])
        )
        yield RULE_US * len(each)
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)


def _deleted(rule: Rule) -> DeletedRule:
    return DeletedRule(
        error_code=Error.NONE,
        error_message=None,
        resource_type=rule.resource_type,
        resource_name=rule.resource_name,
        pattern_type=rule.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )

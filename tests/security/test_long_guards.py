"""The loop is not held by guards either, however much a request names, nor by many rules at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minibroker.broker.authorize.guards import guard
from minibroker.broker.broker import Node
from minibroker.broker.dispatch import Context, find_route
from minibroker.errors import Error
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minibroker.protocol.messages.create_acls import CreateAclsRequest
from minibroker.protocol.messages.delete_acls import DeleteAclsRequest
from minibroker.protocol.messages.describe_acls import DescribeAclsRequest
from minibroker.protocol.messages.offset_delete import OffsetDeleteRequest
from minibroker.security.acls import ALL, ALLOW, ANY, GROUP, LITERAL, PREFIXED, READ, TOPIC
from minibroker.security.principal import Principal
from tests.broker.stretches import counted
from tests.server.running import FedTransport, running
from tests.server.test_long_requests import requests

LINES_MAX = 250_000  # at a stretch; 20 ms have about a million
RULES = 1_500  # written in one piece, as Kafka writes them together
NEWEST = 3
SETTINGS = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


def creation(name: str, operation: int = READ, pattern: int = LITERAL) -> CreateAclsRequest.AclCreation:
    return CreateAclsRequest.AclCreation(
        resource_type=TOPIC,
        resource_name=name,
        resource_pattern_type=pattern,
        principal="User:alice",
        host="*",
        operation=operation,
        permission_type=ALLOW,
    )


def work_of(node: Node, transport: FedTransport, request: Request, version: int) -> Callable[[], Any]:
    """Return what has a request handled by a guard and what stands behind it."""
    context = Context(node, transport.connection, version, "test")
    handler = guard(request.api, version, find_route(request.api, version).handler)
    return lambda: handler(request, context)


@pytest.mark.slow
async def test_many_rules_are_made_listed_and_removed_in_pieces() -> None:
    async with running({**SETTINGS, "super.users": "User:ANONYMOUS"}) as node:
        transport = FedTransport(node)
        made, count = counted(
            work_of(node, transport, CreateAclsRequest(creations=[creation(f"t{n}") for n in range(RULES)]), NEWEST)
        )
        assert {each.error_code for each in made.results} == {Error.NONE}
        assert count.longest_lines <= LINES_MAX, vars(count)
        assert len(node.image.acls) == RULES
        assert node.authorizer is not None
        assert len(node.authorizer.acls) == RULES
        every: dict[str, Any] = {"resource_type_filter": ANY, "pattern_type_filter": ANY, "operation": ANY}
        every |= {"resource_name_filter": None, "principal_filter": None, "host_filter": None, "permission_type": ANY}
        found, count = counted(work_of(node, transport, DescribeAclsRequest(**every), NEWEST))
        assert len(found.resources) == RULES
        assert count.longest_lines <= LINES_MAX / 2, vars(count)
        filters = [DeleteAclsRequest.DeleteAclsFilter(**every)] * 3
        gone, count = counted(work_of(node, transport, DeleteAclsRequest(filters=filters), NEWEST))
        assert [len(each.matching_acls) for each in gone.filter_results] == [RULES] * 3
        assert count.longest_lines <= LINES_MAX, vars(count)
        assert not node.image.acls
        assert not len(node.authorizer.acls)
        transport.close()


@pytest.mark.slow
@pytest.mark.parametrize("may", ["nothing", "half of it", "everything"])
async def test_the_loop_is_not_held_by_a_guard(may: str) -> None:
    async with running({**SETTINGS, "super.users": "User:root"}) as node:
        transport = FedTransport(node)
        transport.connection.principal = Principal("User", {"everything": "root"}.get(may, "alice"))
        if may == "half of it":
            rules = [creation(f"t{n}", ALL, PREFIXED) for n in range(1, 10, 2)]
            admin = FedTransport(node)
            admin.connection.principal = Principal("User", "root")
            counted(work_of(node, admin, CreateAclsRequest(creations=rules), NEWEST))
            admin.close()
        for request, version in requests():
            answer, count = counted(work_of(node, transport, request, version))
            lines_max = LINES_MAX * 0.11 if may == "nothing" else LINES_MAX
            assert count.longest_lines <= lines_max, (type(request).__name__, vars(count))
            if hasattr(answer, "close"):
                answer.close()
        transport.close()


@pytest.mark.slow
@pytest.mark.parametrize("api", ["OffsetDelete", "ConsumerGroupHeartbeat"])
async def test_names_without_anything_to_do_are_asked_about_in_pieces(api: str) -> None:
    names = [f"t{n}" for n in range(100_000)]
    Topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    request: Request = OffsetDeleteRequest(group_id="g", topics=[Topic(name=name, partitions=[]) for name in names])
    if api != "OffsetDelete":
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=5, subscribed_topic_names=names, topic_partitions=None
        )
    async with running({**SETTINGS, "super.users": "User:root"}) as node:
        transport, admin = FedTransport(node), FedTransport(node)
        admin.connection.principal = Principal("User", "root")
        rules = [creation("t", ALL, PREFIXED), creation("g", ALL)]
        rules[1].resource_type = GROUP
        counted(work_of(node, admin, CreateAclsRequest(creations=rules), NEWEST))
        transport.connection.principal = Principal("User", "alice")
        answer, count = counted(work_of(node, transport, request, 0))
        assert answer.error_code == Error.NOT_COORDINATOR  # behind the guard
        assert count.longest_lines <= LINES_MAX * 0.25, vars(count)
        for each in (transport, admin):
            each.close()

"""Access rules in a lesson: made and removed by who may, and explained; and topics, as one client sees them.

What must hold: rules are made by requests, as an administrator makes them; what is decided is what the broker decides.
"""

from __future__ import annotations

from typing import Any

from minibroker.errors import Error, KafkaError
from minibroker.lessons.clients import Asking, NotPossible, check
from minibroker.protocol.messages.create_acls import CreateAclsRequest
from minibroker.protocol.messages.delete_acls import DeleteAclsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.security.acls import ALLOW, ANY, DENY, EVERY, OPERATIONS, Authorizer
from minibroker.security.rule_words import Resource, principal_of
from minibroker.security.why import explain


async def make_rule(
    asking: Asking, broker: int, who: str, operation: int, resource: Resource, *, allows: bool, host: str | None
) -> None:
    """Allow or deny something."""
    wish = CreateAclsRequest.AclCreation(
        resource_type=resource.type,
        resource_name=resource.name or "",
        resource_pattern_type=resource.pattern,
        principal=principal_of(who),
        host=host or EVERY,
        operation=operation,
        permission_type=ALLOW if allows else DENY,
    )
    answer = await asking.ask(broker, CreateAclsRequest(creations=[wish]))
    check(answer.results[0].error_code, answer.results[0].error_message or f"broker {broker} answers this")


async def remove_rules(asking: Asking, broker: int, who: str, operation: int, resource: Resource) -> list[str]:
    """Remove what allows or denies it by just this name or beginning."""
    wish = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=resource.type,
        resource_name_filter=resource.name,
        pattern_type_filter=resource.pattern,
        principal_filter=principal_of(who),
        host_filter=None,
        operation=operation,
        permission_type=ANY,
    )
    found = (await asking.ask(broker, DeleteAclsRequest(filters=[wish]))).filter_results[0]
    check(found.error_code, found.error_message or f"broker {broker} answers this")
    if not found.matching_acls:
        raise NotPossible("there is no such rule")
    return [f"removed: {len(found.matching_acls)} rule{'' if len(found.matching_acls) == 1 else 's'}"]


def tell_decision(
    authorizer: Authorizer | None, who: str, operation: int, resource: Resource, host: str | None
) -> list[str]:
    """Tell what is decided and what became of each rule."""
    if authorizer is None:
        raise NotPossible("this cluster asks nobody: start 1 brokers users=admin:top authorizer")
    made = explain(authorizer, principal_of(who), host or EVERY, operation, resource.type, resource.name or "")
    answer = "yes" if made.allowed else "no"
    may = "may" if made.allowed else "may not"
    first = f"{answer}: {principal_of(who)} {may} {OPERATIONS[operation]} {resource}, because {made.reason}"
    return [first, *(f"{rule}: {verdict}" for rule, verdict in made.rules)]


async def topics_seen(asking: Asking, broker: int, who: str) -> list[str]:
    """Tell which topics a client is told of that asks for all of them."""
    answer = await asking.ask(broker, MetadataRequest(topics=None))
    names = sorted(topic.name for topic in answer.topics if not topic.is_internal)
    return [f"broker {broker} shows {who}: {', '.join(names) or 'no topics'}"]


async def look_for(asking: Asking, broker: int, who: str, name: str) -> list[str]:
    """Tell what a client is answered that asks for one topic."""
    row: Any = MetadataRequest.MetadataRequestTopic(name=name)
    topic = (await asking.ask(broker, MetadataRequest(topics=[row], allow_auto_topic_creation=False))).topics[0]
    if topic.error_code:
        raise KafkaError(Error(topic.error_code), f"broker {broker} answers this to {who}, who asks for {name}")
    count = len(topic.partitions)
    return [f"broker {broker} answers: {name} has {count} partition{'' if count == 1 else 's'}"]

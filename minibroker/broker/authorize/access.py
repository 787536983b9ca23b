"""Who asks, and what they may do: the authorizer as one client sees it, and what guards share."""

from __future__ import annotations

from typing import Any, Final

from minibroker.errors import Error
from minibroker.in_pieces import finish
from minibroker.protocol.headers import Response
from minibroker.security.acls import (
    CLUSTER,
    CLUSTER_NAME,
    DELEGATION_TOKEN,
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    SUPPORTED,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    java_address,
)
from minibroker.server.later import Later
from minibroker.turns import Work, is_work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from minibroker.broker.dispatch import Context
    from minibroker.in_pieces import InPieces
    from minibroker.security.acls import Authorizer

    Change = Callable[[Any], Response | InPieces[Response]]  # of an answer, before it leaves; long ones in pieces

ALLOWED: Final = "allowed"  # events that tell of what was allowed
TOLD_MAX: Final = 20  # decisions of one request that an audit is told of
ASKED_US: Final = 2  # a decision that is not remembered
FAILED: Final = {
    TOPIC: Error.TOPIC_AUTHORIZATION_FAILED,
    GROUP: Error.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: Error.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    DELEGATION_TOKEN: Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    USER: Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
# Kafka's words for these codes, where an answer has words.
WORDS: Final = {
    TOPIC: "Topic authorization failed.",
    GROUP: "Group authorization failed.",
    CLUSTER: "Cluster authorization failed.",
    TRANSACTIONAL_ID: "Transactional Id authorization failed.",
}
GROUP_BEFORE_4: Final = (READ, DELETE, DESCRIBE)  # groups have settings since 4.0


class Access:
    """What the client of one request may do."""

    __slots__ = ("_api", "_authorizer", "_context", "_node", "_told", "host", "principal")

    def __init__(self, context: Context, api: int):
        assert context.node.authorizer is not None
        self._api = api
        self._context = context
        self._node = context.node
        self._authorizer: Authorizer = context.node.authorizer
        # Decisions that an audit has been told of: denials, and what was allowed, which can hide no denial.
        self._told: tuple[set[tuple[int, int, str]], set[tuple[int, int, str]]] = (set(), set())
        self.principal = str(context.connection.principal)
        self.host = java_address(context.connection.remote_address[0])

    def may(self, operation: int, resource_type: int, name: str) -> bool:
        """Return whether it is allowed; if not, that is a denial."""
        is_allowed = self._authorizer.may(self.principal, self.host, operation, resource_type, name)
        if (not is_allowed or ALLOWED in self._node.events.wanted) and len(self._told[is_allowed]) < TOLD_MAX:
            self._tell(is_allowed, operation, resource_type, name)
        return is_allowed

    def could(self, operation: int, resource_type: int, name: str) -> bool:
        """Return whether it is allowed, where a no refuses nothing: what is listed, what something else may allow."""
        return self._authorizer.may(self.principal, self.host, operation, resource_type, name)

    def may_to_cluster(self, operation: int) -> bool:
        return self.may(operation, CLUSTER, CLUSTER_NAME)

    def could_to_cluster(self, operation: int) -> bool:
        return self.could(operation, CLUSTER, CLUSTER_NAME)

    def could_for_any(self, operation: int, resource_type: int) -> bool:
        return self._authorizer.may_for_any(self.principal, self.host, operation, resource_type)

    def _tell(self, is_allowed: bool, operation: int, resource_type: int, name: str) -> None:
        """Tell an audit of a decision, once; of so many in one request, for a client can make them many."""
        told = self._told[is_allowed]
        decision = (operation, resource_type, name)
        if decision not in told and self._authorizer.audit is not None:
            told.add(decision)
            more = "" if len(told) < TOLD_MAX else "; of more in this request nothing is told"
            asked = (self._context.connection.listener_name, self._context.client_id, self._api)
            self._authorizer.audit(is_allowed, asked, self.principal, self.host, decision, more)

    def operations(self, resource_type: int, name: str) -> int:
        """Return what may be done to a resource: bit n is AclOperation n."""
        supported = SUPPORTED[resource_type]
        if resource_type == GROUP and self._node.emulated.is_before_4:
            supported = GROUP_BEFORE_4
        return sum(1 << operation for operation in supported if self.could(operation, resource_type, name))

    def name_of(self, name: str, topic_id: bytes) -> str:
        """Return the name of a topic that a request names, or has the id of; empty: nobody knows the id."""
        return name or self._node.topic_name(topic_id) or ""


def answered(made: Any) -> Work[Any]:
    """Return what a handler has made, an answer or what will have it, when its work is done."""
    return (yield from made) if is_work(made) else made


def changed(made: Any, change: Change) -> Work[Any]:
    """Return what a handler has made, with its answer changed before it leaves, be it there already or later."""
    if is_work(made):
        made = yield from made
    if type(made) is Later:
        return made.into(lambda response: _now(change(response)))
    if hasattr(made, "__await__"):
        return _changed_later(made, change)
    return None if made is None else (yield from answered(change(made)))


async def _changed_later(made: Any, change: Change) -> Any:
    response = await made
    return None if response is None else _now(change(response))


def _now(made: Response | InPieces[Response]) -> Response:
    return finish(made) if is_work(made) else made  # type: ignore[return-value]

"""A request by HTTP as its handler gets it, and how it is refused."""

from __future__ import annotations

from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

    from minibroker.server.http import HttpConnection

NOTHING: Mapping[str, str] = {}
BAD: Final = "400 Bad Request"
NOT_NOW: Final = "503 Service Unavailable"
STATUS: Final = {  # of errors of Kafka; of all others BAD
    Error.UNKNOWN_SERVER_ERROR: "500 Internal Server Error",
    Error.UNKNOWN_TOPIC_OR_PARTITION: "404 Not Found",
    Error.UNKNOWN_TOPIC_ID: "404 Not Found",
    Error.TOPIC_AUTHORIZATION_FAILED: "403 Forbidden",
    Error.CLUSTER_AUTHORIZATION_FAILED: "403 Forbidden",
    Error.TOPIC_ALREADY_EXISTS: "409 Conflict",
    Error.MESSAGE_TOO_LARGE: "413 Content Too Large",
    Error.RECORD_LIST_TOO_LARGE: "413 Content Too Large",
    Error.THROTTLING_QUOTA_EXCEEDED: "429 Too Many Requests",
    Error.LEADER_NOT_AVAILABLE: NOT_NOW,
    Error.NOT_LEADER_OR_FOLLOWER: NOT_NOW,
    Error.NOT_ENOUGH_REPLICAS: NOT_NOW,
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND: NOT_NOW,
    Error.KAFKA_STORAGE_ERROR: NOT_NOW,
    Error.BROKER_NOT_AVAILABLE: NOT_NOW,
    Error.NETWORK_EXCEPTION: NOT_NOW,
    Error.REQUEST_TIMED_OUT: "504 Gateway Timeout",
}


class Refused(Exception):
    """A request that is not carried out; the text says why, and the code, if there is one, is Kafka's."""

    def __init__(self, status: str, reason: str, code: str = ""):
        super().__init__(reason)
        self.status = status
        self.code = code


def as_refused(error: KafkaError) -> Refused:
    """Return how an error of Kafka is told by HTTP."""
    return Refused(STATUS.get(error.code, BAD), error.message, error.code.name)


class Call:
    """What came with a request: the pieces of its path where the route has <...>, its JSON, its query."""

    __slots__ = ("address", "arguments", "body", "connection", "headers", "query")

    def __init__(
        self,
        arguments: tuple[str, ...] = (),
        body: Mapping[str, Any] = NOTHING,
        query: str = "",
        headers: Mapping[str, str] = NOTHING,
        connection: HttpConnection | None = None,
        address: str = "",
    ):
        self.arguments = arguments
        self.body = body
        self.query = query  # as it came
        self.headers = headers
        self.address = address  # from where it came
        self.connection = connection  # None: a program asks that has the broker in its own process

    @property
    def argument(self) -> str:
        return self.arguments[-1] if self.arguments else ""

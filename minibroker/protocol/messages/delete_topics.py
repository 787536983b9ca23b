"""Deletes topics with all their records.

Sent by admin clients; in ZooKeeper clusters only the controller may answer.
v1: throttle time. v3: a broker that forbids deletion says so (73). v4: flexible. v5: messages, quotas on topic changes
(KIP-599). v6: topics may be named by id, which cannot hit a namesake that was created later (KIP-516).
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, NO_ID, Array, Int16, Int32, String, Uuid, since


class DeleteTopicsRequest(Request, api=20, versions="0-6", flexible="4+"):
    """Delete topics by name or by id."""

    topics: Array[DeleteTopicState] = since("6+", default=EMPTY)  # each entry has either a name or an id
    topic_names: Array[String] = since("0-5", default=EMPTY)
    # how long to wait for the deletion; when it is over the answer is 7, though the topic may still go
    timeout_ms: Int32

    class DeleteTopicState(Struct):
        name: String | None = None  # null: the topic is named by its id
        topic_id: Uuid  # all zero: the topic is named by its name


class DeleteTopicsResponse(Response, api=20, versions="0-6", flexible="4+"):
    """One result per topic."""

    throttle_time_ms: Int32 = since("1+", default=0)  # milliseconds a quota makes the client wait; 0: none
    responses: Array[DeletableTopicResult]

    class DeletableTopicResult(Struct):
        # null: asked for by an id that is unknown or that the user may not see
        name: String | None = since("0+", nullable="6+")
        topic_id: Uuid = since("6+", default=NO_ID)  # all zero: asked for by a name that is unknown
        error_code: Int16  # 3: unknown name, 100: unknown id, 73: deletion is switched off (delete.topic.enable)
        error_message: String | None = since("5+", default=None)  # null: no error, or nothing to add to the code

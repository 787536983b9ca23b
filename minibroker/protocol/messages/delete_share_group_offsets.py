"""Make a share group forget where it was in some topics (KIP-932).

Admin tools send it to the group's coordinator; the group must have no members.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Int16, Int32, String, Uuid


class DeleteShareGroupOffsetsRequest(Request, api=92, versions="0", flexible="0+"):
    """Name the group and the topics, always with all their partitions."""

    group_id: String
    topics: Array[DeleteShareGroupOffsetsRequestTopic]

    class DeleteShareGroupOffsetsRequestTopic(Struct):
        topic_name: String


class DeleteShareGroupOffsetsResponse(Response, api=92, versions="0", flexible="0+"):
    """Give one result for each topic."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16  # of the request as a whole: 69 no such share group, 68 it has members
    error_message: String | None = None  # for people to read; null: no error
    responses: Array[DeleteShareGroupOffsetsResponseTopic]

    class DeleteShareGroupOffsetsResponseTopic(Struct):
        topic_name: String
        topic_id: Uuid  # all zero: no such topic
        error_code: Int16  # 0: success
        error_message: String | None = None  # for people to read; null: no error

"""What stands in front of every message on the wire, and which version of it.

A frame is its length as int32, a header, the message. The header's version follows from the message's: flexible
versions (KIP-482) carry tagged fields in the header too. The two exceptions are settings of the messages concerned:

ControlledShutdownRequest v0   header v0, without a client id: brokers of 0.8 never sent one
ApiVersionsResponse            header v0 always: a client that does not yet know the broker must be able to read it
"""

from __future__ import annotations

from minibroker.schema.bounds import ELEMENTS_MAX
from minibroker.schema.message import Message
from minibroker.schema.types import Int16, Int32, OldString, parse_range, since

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


class ApiMessage(Message):
    """What requests and responses have in common."""

    api: ClassVar[int] = -1  # the number of the API on the wire
    header_0: ClassVar[str | None] = None  # the versions that travel behind a header v0 against the rule

    def __init_subclass__(
        cls,
        api: int = -1,
        versions: str = "",
        flexible: str | None = None,
        unstable: str | None = None,
        never_stable: str | None = None,
        header_0: str | None = None,
        elements_max: int = 0,
    ) -> None:
        super().__init_subclass__(versions, flexible, unstable=unstable, never_stable=never_stable)
        if elements_max:
            cls.elements_max = elements_max
        cls.api = api
        cls.header_0 = header_0

    @classmethod
    def has_header_0(cls, version: int) -> bool:
        """Whether this version is one of the exceptions that travel behind a header v0."""
        first, last = parse_range(cls.header_0) if cls.header_0 else (1, 0)
        return first <= version <= last


class Request(ApiMessage):
    """What a client asks."""

    elements_max: ClassVar[int] = ELEMENTS_MAX
    client: tuple[str, str | None] | None = None  # user and client id, where what it changes of topics is counted

    @classmethod
    def header_version(cls, version: int) -> int:
        """Return the version of `RequestHeader` in front of this version of the request."""
        if cls.has_header_0(version):
            return 0
        return 2 if cls.schema.is_flexible(version) else 1


class Response(ApiMessage):
    """The answer to the request with the same `api`."""

    is_long = False  # whether it is to be encoded in pieces, though its request was answered at once

    @classmethod
    def header_version(cls, version: int) -> int:
        """Return the version of `ResponseHeader` in front of this version of the response."""
        return 1 if cls.schema.is_flexible(version) and not cls.has_header_0(version) else 0


class RequestHeader(Message, versions="0-2", flexible="2+"):
    """What precedes a request."""

    elements_max: ClassVar[int] = ELEMENTS_MAX
    request_api_key: Int16  # which message follows
    request_api_version: Int16  # in which version
    correlation_id: Int32  # chosen by the client, returned with the answer
    client_id: OldString | None = since("1+", default="")  # for logs and quotas; a name, not a proof


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """What precedes a response. It names no message: the client must remember what it asked."""

    correlation_id: Int32  # of the request that this answers

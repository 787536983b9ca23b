"""What stands before handlers: asked in turn, from the next request on, and gone when it is taken away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minibroker.broker.dispatch import Context
from minibroker.protocol.headers import Request
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.security.principal import ANONYMOUS
from tests.server.running import connected, running

if TYPE_CHECKING:
    from minibroker.broker.dispatch import Guard, Handler

METADATA = 3
NO_TOPICS = MetadataRequest(topics=[])


def noting(name: str, heard: list[object]) -> Guard:
    def guard(api: int, version: int, handler: Handler) -> Handler:
        def guarded(request: Request, context: Context) -> Any:
            heard.append((name, api, version, context.connection.principal))
            return handler(request, context)

        return guarded if api == METADATA else handler

    return guard


async def test_guards_stand_before_handlers_also_of_requests_that_came_before() -> None:
    heard: list[object] = []
    async with running() as node, connected(node) as client:
        await client.ask(NO_TOPICS, 9)
        node.dispatcher.guard([noting("inner", heard), noting("outer", heard)])
        await client.ask(NO_TOPICS, 9)
        assert heard == [("outer", METADATA, 9, ANONYMOUS), ("inner", METADATA, 9, ANONYMOUS)]
        node.dispatcher.guard([])
        await client.ask(NO_TOPICS, 9)
        assert len(heard) == 2
        assert node.request_counts[METADATA, 9] == 3

"""Calls between brokers that are no part of replication: WriteTxnMarkers, AddPartitionsToTxn.

They are answered by the handlers that answer clients. In a cluster they go over its network, also those of a broker to
itself, so that whatever befalls messages befalls these; a broker that is alone asks itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from minibroker.broker.dispatch import Context, Route, find_route
from minibroker.protocol.headers import Request
from minibroker.turns import is_work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.replication.network import Network


class BrokerToBroker:
    """Those of one broker."""

    def __init__(self, node: BrokerParts, network: Network | None):
        self._node = node
        self._network = network
        self._routes: dict[tuple[int, int], Route] = {}

    def call(self, broker_id: int, request: Request, version: int) -> Any:
        """Ask a broker: return the answer, or what waits for it; NetworkError if there is none in time."""
        node = self._node
        if self._network is None:
            return self.answer(request, version)
        timeout_ms = node.config["request.timeout.ms"]
        return self._network.call(node.node_id, broker_id, request, version, timeout_ms=timeout_ms)

    def holds(self, transactional_id: str, topic: str, partition: int, go_on: Callable[[], object]) -> bool:
        """Whether a rule for faults lets a marker wait."""
        faults = self._node.faults
        return bool(faults.rules) and faults.holds_marker(transactional_id, topic, partition, go_on)

    def answer(self, request: Request, version: int) -> Any:
        """Answer a broker, now or later: then it is a coroutine."""
        node = self._node
        # Such handlers do not look at who asks.
        context = Context(node, None, version, None)  # type: ignore[arg-type]
        route = self._routes.get((request.api, version))
        if route is None:
            route = self._routes[request.api, version] = find_route(request.api, version)
        answer: Any = route.handler(request, context)
        if is_work(answer):
            answer = node.shares.start(answer)
        # A coroutine goes as it is: who is killed before it begins throws it away, and not one within another.
        return _awaited(answer) if hasattr(answer, "__await__") and not asyncio.iscoroutine(answer) else answer


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer

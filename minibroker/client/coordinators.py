"""Coordinators of groups and of transactional ids: finding them, and asking again while they move.

They are looked for once, and forgotten when they say that they are none, or do not answer. What must hold: what some
keys of a call were answered is kept while the others are asked again.
Not here: what is asked (groups.py, transactions.py, transaction_calls.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from minibroker.client.cluster import Cluster
from minibroker.client.connection import CallTimeout, error_of
from minibroker.client.descriptions import SomeFailed
from minibroker.errors import Error, KafkaError

R = TypeVar("R")


GROUP, TRANSACTION = 0, 1  # what a key is the id of
TYPES, MANY_KEYS = 1, 4  # the first versions of FindCoordinator that know transactions, and take several keys


class Coordinators:
    """Uses the connections of the cluster; nothing to close."""

    def __init__(self, cluster: Cluster, key_type: int = GROUP):
        self._cluster = cluster
        self._key_type = key_type
        self._known: dict[str, int] = {}  # key -> broker

    async def ask(
        self, keys: Iterable[str], ask: Callable[[int, list[str]], Awaitable[Mapping[str, R | KafkaError]]]
    ) -> tuple[dict[str, R], dict[str, KafkaError]]:
        """Ask the coordinators of keys, again for those for which all that they say is that this will pass.

        `ask` gets a broker and the keys that it coordinates, and returns a result or an error for each.
        """
        wanted = list(dict.fromkeys(keys))
        results: dict[str, R] = {}
        errors: dict[str, KafkaError] = {}

        def sort(answers: Mapping[str, R | KafkaError], ids: list[str]) -> dict[str, KafkaError]:
            """Take note of answers, and return those that will pass."""
            passing: dict[str, KafkaError] = {}
            for key in ids:
                answer = answers.get(key, KafkaError(Error.UNKNOWN_SERVER_ERROR, "the broker says nothing of it"))
                if not isinstance(answer, KafkaError):
                    results[key] = answer
                elif answer.code.retriable:
                    passing[key] = answer
                else:
                    errors[key] = answer
            self._forget(passing)
            return passing

        async def attempt() -> None:
            left = [key for key in wanted if key not in results and key not in errors]
            unknown = [key for key in left if key not in self._known]
            passing: dict[str, KafkaError] = {}
            if unknown:
                found = await self._find(unknown)
                self._known |= {key: node for key, node in found.items() if not isinstance(node, KafkaError)}
                failures = {key: node for key, node in found.items() if isinstance(node, KafkaError)}
                passing |= sort(failures, list(failures))
            by_node: dict[int, list[str]] = {}
            for key in left:
                if key in self._known:
                    by_node.setdefault(self._known[key], []).append(key)
            for node_id, ids in by_node.items():
                try:
                    passing |= sort(await ask(node_id, ids), ids)
                except KafkaError:
                    self._forget(ids)  # whoever does not answer may have gone, and left its keys to others
                    raise
            if passing:
                raise SomeFailed(passing, results)

        await self._cluster.retrying(attempt)
        return {key: results[key] for key in wanted if key in results}, errors

    async def _find(self, keys: list[str]) -> dict[str, int | KafkaError]:
        from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

        connection = await self._cluster.connection()
        version = connection.version_of(FindCoordinatorRequest)
        if self._key_type and version < TYPES:
            reason = f"transactions need FindCoordinator v{TYPES}, of Kafka 0.11; {connection.address} has v{version}"
            raise KafkaError(Error.UNSUPPORTED_VERSION, reason)

        async def ask(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
            try:
                answer: FindCoordinatorResponse = await connection.call(request, timeout_ms=self._cluster.timeout_ms)
            except CallTimeout:
                await connection.close()  # the next answer would have to wait for this one
                raise
            return answer

        rows: Iterable[tuple[str, Any]]
        if version >= MANY_KEYS:
            answer = await ask(FindCoordinatorRequest(coordinator_keys=keys, key_type=self._key_type))
            rows = [(row.key, row) for row in answer.coordinators]
        else:
            requests = (FindCoordinatorRequest(key=key, key_type=self._key_type) for key in keys)
            rows = zip(keys, await asyncio.gather(*map(ask, requests)))
        found: dict[str, int | KafkaError] = {}
        is_known = True
        for key, row in rows:
            if row.error_code:
                found[key] = error_of(row.error_code, row.error_message or "")
                continue
            found[key] = row.node_id
            node = self._cluster.nodes.get(row.node_id)
            is_known = is_known and node is not None and (node.host, node.port) == (row.host, row.port)
        if not is_known:  # a broker is new, or has come back elsewhere
            await self._cluster.ask_metadata([])
        return found

    def _forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._known.pop(key, None)


def all_or_raise(results: dict[Any, R], errors: Mapping[Any, KafkaError]) -> dict[Any, R]:
    if errors:
        raise SomeFailed(errors, results)
    return results

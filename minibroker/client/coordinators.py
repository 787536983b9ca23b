"""Coordinators of groups: finding them, and asking again while they move.

They are looked for once, and forgotten when they say that they are none, or do not answer. What must hold: what some
groups of a call were answered is kept while the others are asked again.
Not here: what is asked (groups.py).
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


MANY_KEYS = 4  # the first version of FindCoordinator that takes several


class Coordinators:
    """Uses the connections of the cluster; nothing to close."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster
        self._known: dict[str, int] = {}  # group -> broker

    async def ask(
        self, groups: Iterable[str], ask: Callable[[int, list[str]], Awaitable[Mapping[str, R | KafkaError]]]
    ) -> tuple[dict[str, R], dict[str, KafkaError]]:
        """Ask the coordinators of groups, again for those for which all that they say is that this will pass.

        `ask` gets a broker and the groups that it coordinates, and returns a result or an error for each.
        """
        wanted = list(dict.fromkeys(groups))
        results: dict[str, R] = {}
        errors: dict[str, KafkaError] = {}

        def sort(answers: Mapping[str, R | KafkaError], ids: list[str]) -> dict[str, KafkaError]:
            """Take note of answers, and return those that will pass."""
            passing: dict[str, KafkaError] = {}
            for group in ids:
                answer = answers.get(group, KafkaError(Error.UNKNOWN_SERVER_ERROR, "the broker says nothing of it"))
                if not isinstance(answer, KafkaError):
                    results[group] = answer
                elif answer.code.retriable:
                    passing[group] = answer
                else:
                    errors[group] = answer
            self._forget(passing)
            return passing

        async def attempt() -> None:
            left = [group for group in wanted if group not in results and group not in errors]
            unknown = [group for group in left if group not in self._known]
            passing: dict[str, KafkaError] = {}
            if unknown:
                found = await self._find(unknown)
                self._known |= {group: node for group, node in found.items() if not isinstance(node, KafkaError)}
                failures = {group: node for group, node in found.items() if isinstance(node, KafkaError)}
                passing |= sort(failures, list(failures))
            by_node: dict[int, list[str]] = {}
            for group in left:
                if group in self._known:
                    by_node.setdefault(self._known[group], []).append(group)
            for node_id, ids in by_node.items():
                try:
                    passing |= sort(await ask(node_id, ids), ids)
                except KafkaError:
                    self._forget(ids)  # whoever does not answer may have gone, and left its groups to others
                    raise
            if passing:
                raise SomeFailed(passing, results)

        await self._cluster.retrying(attempt)
        return {group: results[group] for group in wanted if group in results}, errors

    async def _find(self, groups: list[str]) -> dict[str, int | KafkaError]:
        from minibroker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

        connection = await self._cluster.connection()

        async def ask(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
            try:
                answer: FindCoordinatorResponse = await connection.call(request, timeout_ms=self._cluster.timeout_ms)
            except CallTimeout:
                await connection.close()  # the next answer would have to wait for this one
                raise
            return answer

        rows: Iterable[tuple[str, Any]]
        if connection.version_of(FindCoordinatorRequest) >= MANY_KEYS:
            answer = await ask(FindCoordinatorRequest(coordinator_keys=groups))
            rows = [(row.key, row) for row in answer.coordinators]
        else:
            rows = zip(groups, await asyncio.gather(*(ask(FindCoordinatorRequest(key=group)) for group in groups)))
        found: dict[str, int | KafkaError] = {}
        is_known = True
        for group, row in rows:
            if row.error_code:
                found[group] = error_of(row.error_code, row.error_message or "")
                continue
            found[group] = row.node_id
            node = self._cluster.nodes.get(row.node_id)
            is_known = is_known and node is not None and (node.host, node.port) == (row.host, row.port)
        if not is_known:  # a broker is new, or has come back elsewhere
            await self._cluster.metadata([])
        return found

    def _forget(self, groups: Iterable[str]) -> None:
        for group in groups:
            self._known.pop(group, None)


def all_or_raise(results: dict[Any, R], errors: Mapping[Any, KafkaError]) -> dict[Any, R]:
    if errors:
        raise SomeFailed(errors, results)
    return results

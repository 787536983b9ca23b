"""Quotas of clients, as administrators ask for them (KIP-546).

An entity is whom a limit is for: the name of each type that it speaks of (user, client-id, ip); None: the default.
Not here: whose limit holds (minibroker.quotas).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from minibroker.client.cluster import Cluster
from minibroker.client.connection import error_of
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from minibroker.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

Entity = tuple[tuple[str, str | None], ...]  # sorted by type

EXACT, DEFAULT, SPECIFIED = 0, 1, 2  # whom a filter means


async def describe_quotas(
    cluster: Cluster, entity: Entity = (), of_types: Collection[str] = ()
) -> dict[Entity, dict[str, float]]:
    """Return the limits of all that have what an entity has, and a name or the default of each of some types.

    Without either, of all there are.
    """
    Component = DescribeClientQuotasRequest.ComponentData
    components = [
        Component(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name) for kind, name in entity
    ]
    components += [Component(entity_type=kind, match_type=SPECIFIED, match=None) for kind in of_types]

    async def ask() -> DescribeClientQuotasResponse:
        answer: DescribeClientQuotasResponse = await cluster.call(
            DescribeClientQuotasRequest(components=components, strict=False)
        )
        if answer.error_code:
            raise error_of(answer.error_code, answer.error_message or "")
        return answer

    answer = await cluster.retrying(ask)
    return {
        tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries or ()
    }


async def alter_quotas(cluster: Cluster, entity: Entity, changes: Mapping[str, float | None]) -> None:
    """Set limits of an entity; None takes one back."""
    Entry = AlterClientQuotasRequest.EntryData
    entry = Entry(
        entity=[Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[Entry.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
    )

    async def ask() -> None:
        answer: AlterClientQuotasResponse = await cluster.call(
            AlterClientQuotasRequest(entries=[entry], validate_only=False)
        )
        if not answer.entries:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR, "the broker says nothing about the limits it was sent")
        for row in answer.entries:
            if row.error_code:
                raise error_of(row.error_code, row.error_message or "")

    await cluster.retrying(ask)

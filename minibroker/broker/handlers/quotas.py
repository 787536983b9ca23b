"""DescribeClientQuotas, AlterClientQuotas: what clients may take, as the metadata log has it (KIP-546)."""

from __future__ import annotations

from minibroker.broker.dispatch import Context
from minibroker.controller.client_quotas import CLIENT_ID, IP, USER
from minibroker.controller.client_quotas import alter_client_quotas as alter
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from minibroker.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from minibroker.quotas.entities import addresses_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.metadata.image import QuotaEntity

Described = DescribeClientQuotasResponse.EntryData
Altered = AlterClientQuotasResponse.EntryData

EXACT, DEFAULT, SPECIFIED = 0, 1, 2  # whom a filter means


def describe_client_quotas(request: DescribeClientQuotasRequest, context: Context) -> DescribeClientQuotasResponse:
    """Return the limits of the entities that fit a filter, or what is wrong with the filter."""
    try:
        _check(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, entries=None
        )
    entries = [
        Described(
            entity=[Described.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[Described.ValueData(key=key, value=limit) for key, limit in limits.items()],
        )
        for entity, limits in context.node.image.client_quotas.items()
        if _fits(entity, request)
    ]
    return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=Error.NONE, error_message="", entries=entries)


def _fits(entity: QuotaEntity, request: DescribeClientQuotasRequest) -> bool:
    """Whether an entity has all that a filter names; strict: and nothing else."""
    parts = dict(entity)
    if request.strict and len(parts) != len(request.components):
        return False
    return all(
        each.entity_type in parts and (each.match_type == SPECIFIED or parts[each.entity_type] == each.match)
        for each in request.components
    )


def _check(components: list[DescribeClientQuotasRequest.ComponentData]) -> None:
    seen = set()
    for component in components:
        kind, match = component.entity_type, component.match
        if kind in seen:
            raise _bad(f"Entity type {kind} cannot appear more than once in the filter.")
        if not kind:
            raise _bad("Invalid empty entity type.")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(Error.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if component.match_type == EXACT:
            if match is None:
                raise _bad("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        elif component.match_type not in (DEFAULT, SPECIFIED):
            raise _bad(f"Unknown match type {component.match_type}")
        elif match is not None:
            name = "DEFAULT" if component.match_type == DEFAULT else "SPECIFIED"
            raise _bad(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
        seen.add(kind)
    if IP in seen and len(seen) > 1:
        raise _bad(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )


def _bad(words: str) -> KafkaError:
    return KafkaError(Error.INVALID_REQUEST, words)


def alter_client_quotas(request: AlterClientQuotasRequest, context: Context) -> AlterClientQuotasResponse:
    """Set limits and take them back, or only say whether that could be done."""
    wishes = [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            [(change.key, None if change.remove else change.value) for change in entry.ops],
        )
        for entry in request.entries
    ]
    records, results = alter(context.node.image, wishes, lambda name: bool(addresses_of(name)))
    if records and not request.validate_only:
        context.node.change(records)
    entries = [
        Altered(
            error_code=Error.NONE if error is None else error.code,
            error_message=None if error is None else error.message,
            entity=[Altered.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        )
        for entity, error in results
    ]
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=entries)

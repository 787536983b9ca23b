"""DescribeClientQuotas, AlterClientQuotas: there are none, and none can be set."""

from __future__ import annotations

from minibroker.broker.dispatch import Context
from minibroker.errors import Error, KafkaError
from minibroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from minibroker.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, SPECIFIED = 0, 1, 2  # whom a filter means


def describe_client_quotas(request: DescribeClientQuotasRequest, context: Context) -> DescribeClientQuotasResponse:
    """Say that there are none, or what is wrong with the filter."""
    try:
        _check(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, entries=None
        )
    return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=Error.NONE, error_message="", entries=[])


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
    """Refuse every quota; taking one back that is not there changes nothing.

    Kafka: throttles. Here nobody is throttled, and nobody is to believe so.
    """
    Entry = AlterClientQuotasResponse.EntryData
    entries = []
    for entry in request.entries:
        sets = any(not change.remove for change in entry.ops)
        entries.append(
            Entry(
                error_code=Error.INVALID_REQUEST if sets else Error.NONE,
                error_message="this broker throttles nobody" if sets else None,
                entity=[
                    Entry.EntityData(entity_type=each.entity_type, entity_name=each.entity_name)
                    for each in entry.entity
                ],
            )
        )
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=entries)

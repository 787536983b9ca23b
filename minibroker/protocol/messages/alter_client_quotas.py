"""AlterClientQuotas: set or remove quotas of users, client ids and IP addresses (KIP-546).

Sent by admin tools; a broker forwards it to the controller. Each entry succeeds or fails on its own.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Float64, Int16, Int32, String


class AlterClientQuotasRequest(Request, api=49, versions="0-1", flexible="1+", elements_max=10_000):
    """Set or remove quota values for one or more entities."""

    entries: Array[EntryData]
    validate_only: Bool  # true: check the request and answer as usual, but change nothing

    class EntryData(Struct):
        entity: Array[EntityData]  # the parts together name one entity: user, client-id, user and client-id, or ip
        ops: Array[OpData]

        class EntityData(Struct):
            entity_type: String  # "user", "client-id" or "ip"
            entity_name: String | None  # null: the default for every entity of this type that has no quota of its own

        class OpData(Struct):
            # producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate or (ip)
            # connection_creation_rate
            key: String
            value: Float64  # in the unit of the key (bytes per second, percent, ...); ignored when remove is true
            remove: Bool  # true: delete this quota, so the next more general one applies


class AlterClientQuotasResponse(Response, api=49, versions="0-1", flexible="1+"):
    """One result per entry of the request."""

    throttle_time_ms: Int32  # how long a quota makes the client wait before its next request; 0: not at all
    entries: Array[EntryData]

    class EntryData(Struct):
        error_code: Int16
        error_message: String | None  # null: no error or no text
        entity: Array[EntityData]  # repeats the entity of the request, so the client can match the result

        class EntityData(Struct):
            entity_type: String  # "user", "client-id" or "ip"
            entity_name: String | None  # null: the default for every entity of this type that has no quota of its own

"""List quotas of users, client ids and IP addresses (KIP-546). Admin tools send it to any broker. v1: flexible."""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import Array, Bool, Float64, Int8, Int16, Int32, String


class DescribeClientQuotasRequest(Request, api=48, versions="0-1", flexible="1+"):
    """Describe the entities to look for."""

    components: Array[ComponentData]  # conditions that must all hold; empty: every quota
    strict: Bool  # true: leave out entities that have a type not named in components

    class ComponentData(Struct):
        entity_type: String  # user, client-id or ip
        match_type: Int8  # 0: the name in match, 1: the default entity, 2: any entity that has a name
        match: String | None  # null unless match_type is 0


class DescribeClientQuotasResponse(Response, api=48, versions="0-1", flexible="1+"):
    """List the entities with their quotas."""

    throttle_time_ms: Int32  # how long the quota of the client makes it wait, 0: not at all
    error_code: Int16  # 0: success
    error_message: String | None  # for people to read; null: no error
    entries: Array[EntryData] | None  # null with an error

    class EntryData(Struct):
        entity: Array[EntityData]  # whom it is for; a user and a client-id together mean that client of that user
        values: Array[ValueData]

        class EntityData(Struct):
            entity_type: String  # user, client-id or ip
            entity_name: String | None  # null: the default, for all that have no quota of their own

        class ValueData(Struct):
            key: String  # such as producer_byte_rate, consumer_byte_rate, request_percentage
            value: Float64  # unit depends on key: bytes in a second, percent of a thread, changes in a second

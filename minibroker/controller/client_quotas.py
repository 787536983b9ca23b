"""Client quotas as an administrator sets them: a wish becomes records, or the error of one entity (KIP-546).

Each entity succeeds or fails for itself, with Kafka's words (ClientQuotaControlManager). What is so already is not
written again, and taking back what is not there changes nothing.
"""

from __future__ import annotations

from math import isfinite

from minibroker.errors import Error, KafkaError
from minibroker.stored.security import ClientQuotaRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from minibroker.metadata.image import MetadataImage
    from minibroker.stored.kinds import MetadataRecord

    Entity = Mapping[str, str | None]  # the name of each type that is spoken of; None: the default
    Change = tuple[str, float | None]  # a key, and its limit; None takes it back

USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES = (CLIENT_ID, USER, IP)  # in the order in which Kafka writes and tells them
SHORT, LARGE = "INT", "LONG"  # what Kafka keeps a limit in, where it has no fractions
INTEGERS_MAX = {SHORT: (1 << 31) - 1, LARGE: (1 << 63) - 1}
OF_CLIENTS = {
    "producer_byte_rate": LARGE,
    "consumer_byte_rate": LARGE,
    "request_percentage": "",
    "controller_mutation_rate": "",
}
OF_ADDRESSES = {"connection_creation_rate": SHORT}
FRACTION_MAX = 1e-6


def alter_client_quotas(
    image: MetadataImage,
    wishes: Sequence[tuple[Entity, Sequence[Change]]],
    is_address: Callable[[str], bool],
) -> tuple[list[MetadataRecord], list[tuple[Entity, KafkaError | None]]]:
    """Return the records that fulfil wishes, and what became of each entity."""
    records: list[MetadataRecord] = []
    results: dict[frozenset[tuple[str, str | None]], tuple[Entity, KafkaError | None]] = {}
    for given, changes in wishes:
        entity = {kind: given[kind] for kind in sorted(given, key=_place)}
        key = frozenset(entity.items())
        keys = [change_key for change_key, _ in changes]
        is_known = key in results or len(set(keys)) < len(keys)
        try:
            if is_known:
                raise _bad(f"Ignoring duplicate entity {_entity_text(entity)}")
            records += _changes(image, entity, changes, is_address)
            results[key] = entity, None
        except KafkaError as error:
            results[key] = entity, error
    return records, list(results.values())


def _changes(
    image: MetadataImage, entity: Entity, changes: Sequence[Change], is_address: Callable[[str], bool]
) -> list[MetadataRecord]:
    types = _check_entity(entity, is_address)
    present = image.client_quotas.get(tuple(sorted(entity.items(), key=lambda part: part[0])), {})
    records: list[MetadataRecord] = []
    for key, limit in changes:
        if limit is not None:
            _check_limit(types, key, limit)
        if present.get(key) != limit:
            parts = [ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
            records.append(ClientQuotaRecord(entity=parts, key=key, value=limit or 0.0, remove=limit is None))
    return records


def _check_entity(entity: Entity, is_address: Callable[[str], bool]) -> Mapping[str, str]:
    """Return which limits an entity can have."""
    for kind, name in entity.items():
        if kind not in TYPES:
            raise _bad(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _bad(f"Empty {kind} not supported")
    if not entity:
        raise _bad("Invalid empty client quota entity")
    if IP not in entity:
        return OF_CLIENTS
    if len(entity) > 1:
        raise _bad("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    name = entity[IP]
    if name is not None and not is_address(name):
        raise _bad(f"{name} is not a valid IP or resolvable host.")
    return OF_ADDRESSES


def _check_limit(types: Mapping[str, str], key: str, limit: float) -> None:
    if key not in types:
        raise _bad(f"Invalid configuration key {key}")
    if not isfinite(limit):  # Kafka: since 4.4; what 3.9 has written is read, and limits nothing
        raise _bad(f"Quota {key} must be a finite number")
    if limit <= 0:
        raise _bad(f"Quota {key} must be greater than 0")
    kind = types[key]
    if not kind:
        return
    if limit > INTEGERS_MAX[kind]:
        raise _bad(f"Proposed value for {key} is too large for {'an' if kind == SHORT else 'a'} {kind}.")
    if abs(limit % 1) > FRACTION_MAX:
        raise _bad(f"{key} cannot be a fractional value.")


def _place(kind: str) -> int:
    return TYPES.index(kind) if kind in TYPES else len(TYPES)


def _entity_text(entity: Entity) -> str:
    """Return an entity as Java prints it."""
    parts = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity.items())
    return f"ClientQuotaEntity(entries={{{parts}}})"


def _bad(words: str) -> KafkaError:
    return KafkaError(Error.INVALID_REQUEST, words)

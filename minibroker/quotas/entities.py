"""Whose limit holds for a client: that of its user and client id, of one of them, or a default (DefaultQuotaCallback).

    user and client id   user, default client id   user
    default user and client id   default user and default client id   default user
    client id   default client id

The first that has a limit counts, and says who shares what it allows: all clients of a user where it is a user's, each
client id of each user where it is for client ids.
"""

from __future__ import annotations

from math import inf, isfinite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from minibroker.metadata.image import QuotaEntity

    Owner = tuple[str, str]  # user and client id that share a limit; "": whoever it is
    Pair = tuple[str | None, str | None]  # user and client id that a limit is for, each may be ANY or DEFAULT

USER, CLIENT_ID, IP = "user", "client-id", "ip"
CLIENTS = frozenset((USER, CLIENT_ID))
PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE, MUTATION_RATE = "request_percentage", "controller_mutation_rate"
CONNECTION_RATE = "connection_creation_rate"
ANY = ""  # the entity does not speak of it; no name is empty
DEFAULT = None


class ClientLimits:
    """The limits of one kind of quota."""

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]], key: str):
        self._limits: dict[Pair, float] = {}
        self._key = key
        for entity, limits in quotas.items():
            self.change(entity, limits)

    def change(self, entity: QuotaEntity, limits: Mapping[str, float]) -> None:
        """Have the limits of one entity, all kinds of them, and no others."""
        parts = dict(entity)
        if parts.keys() <= CLIENTS:
            pair = parts.get(USER, ANY), parts.get(CLIENT_ID, ANY)
            if isfinite(limits.get(self._key, inf)):
                self._limits[pair] = limits[self._key]
            else:
                self._limits.pop(pair, None)

    def __bool__(self) -> bool:
        return bool(self._limits)

    def get(self, pair: Pair) -> float | None:
        """Return the limit that somebody has set for a pair, None if nobody has."""
        return self._limits.get(pair)

    def find(self, user: str, client_id: str | None) -> tuple[Owner, float] | None:
        """Return who shares the limit of a client, and the limit."""
        pair = self.find_pair(user, client_id)
        if pair is None:
            return None
        return owner_of(pair, user, client_id), self._limits[pair]

    def find_pair(self, user: str, client_id: str | None) -> Pair | None:
        """Return whose limit holds for a client."""
        for pair in precedence(user, client_id):
            if pair in self._limits:
                return pair if pair[1] == ANY or client_id else self._find_unnamed(pair, user, client_id)
        return None

    def _find_unnamed(self, pair: Pair, user: str, client_id: str | None) -> Pair | None:
        """Return what holds for a client without an id where there are limits for client ids: a user's, or none."""
        if client_id is None or pair[0] == ANY:
            return None
        return next((each for each in ((user, ANY), (DEFAULT, ANY)) if each in self._limits), None)


def precedence(user: str, client_id: str | None) -> tuple[Pair, ...]:
    """Return whose limits may hold for a client; the first of them that has one counts."""
    return (
        *((user, client_id), (user, DEFAULT), (user, ANY)),
        *((DEFAULT, client_id), (DEFAULT, DEFAULT), (DEFAULT, ANY)),
        *((ANY, client_id), (ANY, DEFAULT)),
    )


def owner_of(pair: Pair, user: str, client_id: str | None) -> Owner:
    """Return who shares a limit that holds for a client."""
    return (ANY if pair[0] == ANY else user), (ANY if pair[1] == ANY else client_id or ANY)


def rates_by_address(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> tuple[dict[str, int], int | None]:
    """Return how many connections a second there may be from some addresses, and from every other; None: any number."""
    found: dict[str, int] = {}
    default = None
    for entity, limits in quotas.items():
        if len(entity) == 1 and entity[0][0] == IP and isfinite(limits.get(CONNECTION_RATE, inf)):
            name, limit = entity[0][1], int(limits[CONNECTION_RATE])
            if name is DEFAULT:
                default = limit
            for address in addresses_of(name or ""):
                found[address] = limit
    return found, default


def addresses_of(name: str) -> tuple[str, ...]:
    """Return the addresses that a quota for `name` is about; none if it is no address.

    Kafka: asks the name service, too, for whatever name it is told.
    """
    from ipaddress import ip_address  # few ask for it

    if name == "localhost":
        return "127.0.0.1", "::1"
    try:
        return (str(ip_address(name.strip("[]"))),)
    except ValueError:
        return ()

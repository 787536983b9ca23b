"""What is measured for one kind of quota, by who shares a limit, and which limit that is.

What must hold: a client for which there is no limit costs a look into a table. Who has not been heard of for an hour is
forgotten, and of very many the one that was heard of longest ago; of a long name, which clients make up at will, a
digest is kept and no more. Limits change, and what was measured stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from minibroker.quotas.entities import ClientLimits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from minibroker.metadata.image import MetadataImage, QuotaEntity
    from minibroker.quotas.entities import Owner

    Found = tuple[Owner, float] | None

Meter = TypeVar("Meter")

EXPIRY_MS: Final = 3_600_000
METERS_MAX: Final = 10_000
CLIENTS_MAX: Final = 10_000  # whose limits are remembered
NAMES_MAX: Final = 256  # letters of a user and a client id that are kept as they are


class Meters(Generic[Meter]):
    """One for each kind of quota of a broker; the meter used least recently is first."""

    def __init__(self, key: str, make: Callable[[], Meter]):
        self.key = key
        self._make = make
        self._meters: dict[Owner, tuple[Meter, int]] = {}  # and when it was used
        self._found: dict[tuple[str, str | None], Found] = {}
        self._limits = ClientLimits({}, key)
        self._image: MetadataImage | None = None  # that they are from
        self._version = 0

    def __len__(self) -> int:
        return len(self._meters)

    @property
    def has_limits(self) -> bool:
        return bool(self._limits)

    def follow(self, image: MetadataImage, changed: Sequence[QuotaEntity] = ()) -> None:
        """Have the limits that the metadata have; changed: of each record since the last time whom it limits.

        Whoever knows less of the changes than there were gets all limits anew; if there was none, nothing is done.
        """
        version = image.client_quotas_version
        if image is not self._image or version - self._version != len(changed):
            self.take_limits(image.client_quotas)
        elif changed:
            for entity in changed:
                self._limits.change(entity, image.client_quotas.get(entity, {}))
            self._found.clear()
        self._image, self._version = image, version

    def take_limits(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Replace all limits."""
        self._limits = ClientLimits(quotas, self.key)
        self._found.clear()

    def find(self, user: str, client_id: str | None) -> Found:
        """Return who shares the limit of a client, and the limit; None if there is none."""
        client = user, client_id
        if len(user) + len(client_id or "") > NAMES_MAX:
            return self._limits.find(user, client_id)
        if client not in self._found:
            if len(self._found) >= CLIENTS_MAX:
                self._found.clear()
            self._found[client] = self._limits.find(user, client_id)
        return self._found[client]

    def meter_of(self, owner: Owner, now_ms: int) -> Meter:
        meters = self._meters
        if len(owner[0]) + len(owner[1]) > NAMES_MAX:
            owner = _digest(owner)
        known = meters.pop(owner, None)
        if known is None:
            while meters and (len(meters) >= METERS_MAX or self._is_expired(now_ms)):
                del meters[next(iter(meters))]
        meter = self._make() if known is None else known[0]
        meters[owner] = meter, now_ms
        return meter

    def _is_expired(self, now_ms: int) -> bool:
        _, used_ms = next(iter(self._meters.values()))
        return now_ms - used_ms >= EXPIRY_MS


def _digest(owner: Owner) -> Owner:
    """Return what stands for somebody with a long name; no name begins with the separator."""
    from hashlib import sha256

    return "\0", sha256(repr(owner).encode()).hexdigest()

"""Quotas of clients: bytes produced and fetched in a second, the share of the broker's time, changes of topics.

    record -> the rate of whoever shares the limit -> above it: (rate - limit) / limit * window ms to wait

Not here: what is done to who has to wait (broker/quotas_guard.py).
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from minibroker.quotas.controller_mutations import MutationQuota
from minibroker.quotas.entities import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from minibroker.quotas.meters import Meters
from minibroker.quotas.rates import THROTTLE_MS_MAX, Rate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from minibroker.metadata.image import MetadataImage, QuotaEntity

PERCENT_OF_NS: Final = 100 / 1e9  # of one second


class Measured(NamedTuple):
    """What has been recorded of a client."""

    rate: float  # in a second
    limit: float
    span_ms: int  # over which it is measured
    samples: list[tuple[int, float]]  # when each began, and what it holds; the oldest first


class RateQuota(Meters[Rate]):
    """One kind of limit on what clients take in a second."""

    def __init__(self, key: str, samples: int, sample_ms: int, throttle_ms_max: int = THROTTLE_MS_MAX):
        super().__init__(key, partial(Rate, samples, sample_ms))
        self.full_window_s = (samples - 1) * sample_ms / 1000
        self.throttle_ms_max = throttle_ms_max

    def record(self, user: str, client_id: str | None, value: float, now_ms: int) -> int:
        """Count what a client has taken; return how long it is to take nothing more."""
        found = self.find(user, client_id)
        if found is None:
            return 0
        owner, limit = found
        rate = self.meter_of(owner, now_ms)
        rate.record(value, now_ms)
        return min(rate.throttle_ms(limit, now_ms), self.throttle_ms_max)

    def take_back(self, user: str, client_id: str | None, value: float, now_ms: int) -> None:
        """Do as if it had not been recorded."""
        found = self.find(user, client_id)
        if found is not None:
            self.meter_of(found[0], now_ms).record(-value, now_ms)

    def measured(self, user: str, client_id: str | None, now_ms: int) -> Measured | None:
        """Return what has been recorded of a client, None if nobody limits it."""
        found = self.find(user, client_id)
        if found is None:
            return None
        rate = self.meter_of(found[0], now_ms)
        return Measured(rate.per_second(now_ms), found[1], rate.span_ms(now_ms), rate.samples(now_ms))

    def window_bytes(self, user: str, client_id: str | None) -> int:
        """Return what a client may take at once that has been silent; more could never be had."""
        found = self.find(user, client_id)
        return THROTTLE_MS_MAX if found is None else min(int(found[1] * self.full_window_s), THROTTLE_MS_MAX)


class ClientQuotas:
    """All of one broker."""

    def __init__(self, samples: int, sample_s: int, mutation_samples: int, mutation_sample_s: int):
        sample_ms = sample_s * 1000
        self.produce = RateQuota(PRODUCER_BYTE_RATE, samples, sample_ms)
        self.fetch = RateQuota(CONSUMER_BYTE_RATE, samples, sample_ms)
        self.request = RateQuota(REQUEST_PERCENTAGE, samples, sample_ms, throttle_ms_max=sample_ms)
        self.mutations = MutationQuota(mutation_samples, mutation_sample_s * 1000)

    def follow(self, image: MetadataImage, changed: Sequence[QuotaEntity] = ()) -> None:
        """Have the limits that the metadata have, see Meters; what has been measured stays."""
        for each in (self.produce, self.fetch, self.request, self.mutations):
            each.follow(image, changed)

    @property
    def has_limits(self) -> bool:
        return any(each.has_limits for each in (self.produce, self.fetch, self.request, self.mutations))

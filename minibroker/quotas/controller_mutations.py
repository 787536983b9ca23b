"""Changes of topics that a client may make: so many partitions a second are made or deleted (KIP-599).

    strict       newer versions of the APIs: who has a debt is refused with THROTTLING_QUOTA_EXCEEDED, and asks again
    permissive   older versions, which do not know the error: all is done, and who has a debt then has to wait

One wish may be larger than the limit: it is done if there was no debt before, and leaves one.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from minibroker.errors import Error, KafkaError
from minibroker.quotas.entities import MUTATION_RATE
from minibroker.quotas.meters import Meters
from minibroker.quotas.rates import TokenBucket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Clock = Callable[[], int]

# APIs, and since which version each is strict
STRICT_SINCE: Final = {19: 6, 20: 5, 37: 3}  # CreateTopics, DeleteTopics, CreatePartitions


class MutationQuota(Meters[TokenBucket]):
    """The buckets of one controller."""

    def __init__(self, samples: int, sample_ms: int):
        super().__init__(MUTATION_RATE, partial(TokenBucket, samples, sample_ms))

    def begin(self, user: str, client_id: str | None, now_ms: Clock, *, is_strict: bool) -> Mutations | None:
        """Return what one request has to be counted by, None if nobody limits it."""
        found = self.find(user, client_id)
        if found is None:
            return None
        owner, limit = found
        return Mutations(self.meter_of(owner, now_ms()), limit, now_ms, is_strict=is_strict)


class Mutations:
    """The changes of one request."""

    def __init__(self, bucket: TokenBucket, limit: float, now_ms: Clock, *, is_strict: bool):
        self._bucket = bucket
        self._limit = limit
        self._now_ms = now_ms
        self._is_strict = is_strict
        self._throttle_ms = 0
        self._noted_ms = 0

    def take(self, count: int) -> None:
        """Count partitions that are made or deleted; THROTTLING_QUOTA_EXCEEDED if there are to be none."""
        now_ms = self._now_ms()
        if not self._is_strict:
            self._bucket.take(count, self._limit, now_ms)
        throttle_ms = self._bucket.throttle_ms(self._limit, now_ms)
        if throttle_ms:
            self._throttle_ms, self._noted_ms = throttle_ms, now_ms
            if self._is_strict:
                raise KafkaError(Error.THROTTLING_QUOTA_EXCEEDED)
        if self._is_strict:
            self._bucket.take(count, self._limit, now_ms)

    @property
    def throttle_ms(self) -> int:
        """How long the client is to wait from now on."""
        return max(self._throttle_ms - (self._now_ms() - self._noted_ms), 0)

"""Rates over a window of samples, and buckets of tokens: what quotas are measured by (SampledStat, Rate, TokenBucket).

    samples of 1 s   |  3  |  0  |  5  |  2 .      the rate is their sum by the time since the oldest began
                     oldest         newest now     or, until so many have passed, as if all but one of them had

So a client that has been silent may take a whole window's worth at once, and then no more than the limit. A sample in
which nothing has happened for a whole window is forgotten.
What must hold: arithmetic and order are Kafka's, for throttle times follow from them.
"""

from __future__ import annotations

from math import inf

THROTTLE_MS_MAX = (1 << 31) - 1  # as an answer can say it


class Sample:
    __slots__ = ("begun_ms", "last_ms", "value")

    def __init__(self, now_ms: int):
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.begun_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """What has been recorded, by second."""

    __slots__ = ("_current", "_samples", "count", "sample_ms")

    def __init__(self, count: int, sample_ms: int):
        """count: how many samples there are; sample_ms: how long each is."""
        self.count = count
        self.sample_ms = sample_ms
        self._samples: list[Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        samples = self._samples
        if not samples:
            samples.append(Sample(now_ms))
        sample = samples[self._current]
        if now_ms - sample.begun_ms >= self.sample_ms:
            # One more than are counted: the oldest lies in the window with a part of it.
            self._current = (self._current + 1) % (self.count + 1)
            if self._current == len(samples):
                samples.append(Sample(now_ms))
            else:
                samples[self._current].reset(now_ms)
            sample = samples[self._current]
        sample.value += value
        sample.last_ms = now_ms

    def span_ms(self, now_ms: int) -> int:
        """Return the time over which the rate is one."""
        elapsed_ms = self._elapsed_ms(now_ms)
        missing = self.count - 1 - elapsed_ms // self.sample_ms
        return max(elapsed_ms + max(missing, 0) * self.sample_ms, 1)

    def _elapsed_ms(self, now_ms: int) -> int:
        """Forget what is too old, and return how long ago the oldest sample that is left began."""
        expired_ms = now_ms - self.count * self.sample_ms
        oldest_ms = now_ms
        for sample in self._samples:
            if sample.last_ms <= expired_ms:
                sample.reset(now_ms)
            oldest_ms = min(oldest_ms, sample.begun_ms)
        return now_ms - oldest_ms

    def per_second(self, now_ms: int) -> float:
        span_ms = self.span_ms(now_ms)
        return sum(sample.value for sample in self._samples) * 1000 / span_ms

    def samples(self, now_ms: int) -> list[tuple[int, float]]:
        """Return when each sample that counts began, and what it holds; the oldest first."""
        self._elapsed_ms(now_ms)
        return sorted((sample.begun_ms, sample.value) for sample in self._samples)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return how long nothing may be taken, for the rate to be what the limit allows; 0: it is."""
        rate = self.per_second(now_ms)
        if not rate > limit:
            return 0
        return rounded_ms((rate - limit) / limit * self.span_ms(now_ms))


class SimpleRate(Rate):
    """A rate over the time that has passed, however short: from one sample on. Replication is measured so."""

    __slots__ = ()

    def span_ms(self, now_ms: int) -> int:
        return max(self._elapsed_ms(now_ms), self.sample_ms)


class TokenBucket:
    """So many tokens come in a second, up to a window's worth; who takes more than there are has a debt (KIP-599)."""

    __slots__ = ("_tokens", "_updated_ms", "window_s")

    def __init__(self, count: int, sample_ms: int):
        self.window_s = count * sample_ms / 1000
        self._tokens = inf
        self._updated_ms = 0

    def tokens(self, limit: float, now_ms: int) -> float:
        """Return what is left; below 0 there is a debt."""
        come = limit * (now_ms - self._updated_ms) / 1000
        self._tokens = min(self.window_s * limit, self._tokens + come)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, limit: float, now_ms: int) -> None:
        self._tokens = min(self.window_s * limit, self.tokens(limit, now_ms) - count)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return how long it takes until there is no debt; 0: there is none."""
        tokens = self.tokens(limit, now_ms)
        return rounded_ms(-tokens / limit * 1000) if tokens < 0 else 0


def rounded_ms(milliseconds: float) -> int:
    return min(int(milliseconds + 0.5), THROTTLE_MS_MAX) if milliseconds < THROTTLE_MS_MAX else THROTTLE_MS_MAX

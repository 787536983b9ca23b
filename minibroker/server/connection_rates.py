"""How many connections come in a second: to a broker, to one listener, from one address (KIP-402, KIP-612).

    listener, broker   whoever comes too soon waits until it is his turn, one behind the other
    address            whoever comes too soon is not let in: the connection is closed, after the time that he would wait

Made as soon as somebody limits it. Kafka: ConnectionQuotas has this, too.
"""

from __future__ import annotations

from minibroker.quotas.rates import Rate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

ADDRESSES_MAX: Final = 10_000  # from which somebody came, and whose rate is known; the last one is known longest


class ConnectionRates:
    """Rates of one broker, shared by its listeners."""

    def __init__(self, samples: int, sample_ms: int):
        self._samples = samples
        self._sample_ms = sample_ms
        self._broker = Rate(samples, sample_ms)
        self._listeners: dict[str, Rate] = {}
        self._addresses: dict[str, Rate] = {}
        self.broker_max: int | None = None
        self.listener_max: Mapping[str, int] = {}
        self.address_max: Mapping[str, int] = {}
        self.address_default: int | None = None

    def delay_ms(self, listener: str, now_ms: int, *, is_protected: bool) -> int:
        """Count who comes to a listener; return how long he has to wait. is_protected: brokers come this way."""
        delay_ms = 0
        if self.broker_max is not None and not is_protected:
            delay_ms = self._record(self._broker, self.broker_max, now_ms)
        if listener in self.listener_max:
            rate = self._listeners.setdefault(listener, Rate(self._samples, self._sample_ms))
            delay_ms = max(delay_ms, self._record(rate, self.listener_max[listener], now_ms))
        return delay_ms

    def refusal_ms(self, listener: str, address: str, now_ms: int, *, is_protected: bool) -> int:
        """Count who comes from an address; return after which time he is sent away, 0: he may come in."""
        limit = self.address_max.get(address, self.address_default)
        if limit is None:
            return 0
        rate = self._addresses.pop(address, None) or Rate(self._samples, self._sample_ms)
        self._addresses[address] = rate
        if len(self._addresses) > ADDRESSES_MAX:
            del self._addresses[next(iter(self._addresses))]
        delay_ms = self._record(rate, limit, now_ms)
        if delay_ms:  # who is not let in counts nowhere
            rate.record(-1, now_ms)
            if self.broker_max is not None and not is_protected:
                self._broker.record(-1, now_ms)
            if listener in self._listeners:
                self._listeners[listener].record(-1, now_ms)
        return delay_ms

    def _record(self, rate: Rate, limit: int, now_ms: int) -> int:
        rate.record(1, now_ms)
        if not limit:
            return self._sample_ms  # setting it to 0 lets in one a second, as Kafka does
        return min(rate.throttle_ms(limit, now_ms), self._sample_ms)

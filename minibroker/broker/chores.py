"""What a broker does from time to time: checkpoints, flushes that are due, producers that are forgotten."""

from __future__ import annotations

from minibroker.errors import StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from minibroker.broker.node import Node
    from minibroker.clock import Timer

CHECKPOINT_MS = 60_000
EXPIRY_MS = 600_000
FLUSH_MS = 1_000


class Chores:
    """The timers of one broker."""

    def __init__(self, node: Node):
        self.node = node
        self._timers: dict[str, Timer] = {}
        self._noted: dict[tuple[str, int], int] = {}  # high watermarks, as of the last time they were written

    def start(self) -> None:
        self._every(CHECKPOINT_MS, self.checkpoint)
        self._every(self.node.config["replica.high.watermark.checkpoint.interval.ms"], self.checkpoint_high_watermarks)
        self._every(EXPIRY_MS, self.expire_producers)
        self._every(FLUSH_MS, self.flush_due)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _every(self, period_ms: int, act: Callable[[], object]) -> None:
        """Do something again and again; a disk that refuses once is asked again the next time."""

        def again() -> None:
            self._every(period_ms, act)
            try:
                act()
            except StorageError as failure:
                self.node.reporter.say(str(failure))
                self.node.disk_failed(failure)

        self._timers[act.__name__] = self.node.clock.after(period_ms, again)

    def checkpoint(self) -> None:
        self.node.directory.write_checkpoints()

    def checkpoint_high_watermarks(self) -> None:
        found = {key: replica.high_watermark for key, replica in self.node.replicas.items()}
        if found != self._noted:
            self.node.directory.write_high_watermarks(found)
            self._noted = found

    def expire_producers(self) -> None:
        now_ms = self.node.clock.now_ms()
        for replica in self.node.replicas.values():
            log = replica.log
            if log.producers.producers:
                log.producers.expire(now_ms, log.settings.producer_id_expiration_ms)

    def flush_due(self) -> None:
        now_ms = self.node.clock.now_ms()
        for replica in self.node.replicas.values():
            if replica.log.offline is None and replica.log.flush_due(now_ms):
                replica.log.flush(now_ms=now_ms)

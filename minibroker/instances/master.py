"""Master of one instance: takes the reports of its brokers and answers each with its share.

A share is given to one broker only after others have given it back: an answer may be lost or late, so a broker counts
with the most that any answer allows it which it may have taken and which it has not reported to be replaced. Nobody is
given more than the limit leaves beside that. So one and the same distribution comes into force by and by, first where
it lowers, then where it raises, and the next is made when all have reported that they hold it, and measured under it.

A broker that has lost its master falls back to F after two leases (reports.py). The master cannot see that; it knows
how long ago a broker has heard of it at the latest, and when that is more than a lease for any of them nobody is given
more than F. Such a share ends within a lease, before the silent one comes to have more than it was given.

A new master gives out F, but only where that lowers what is in force, for one lease: then all that an older master
gave has ended, and it begins from F.

At full capacity producing is held back, and consuming goes on; below 95 % of it producing goes on, too.
What must hold, if partitions stay where they are: the shares in force at the same time come to no more than the rule's
total. An older master gives out nothing more when a new one begins. When partitions move while a broker is cut off, it
has its old F until it hears of it; who leads nothing and has been silent for two leases is taken to be gone.
Not here: where reports come from, who is the master.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from minibroker.instances.flow_control import FAIR, SCALED, Distribution, distribute, fair_shares, shares_total_max
from minibroker.instances.reports import NO_FLOW, Flow, Report, Share

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

REOPENED_PERCENT = 95  # of the capacity; below it an instance that was full takes records again
NEVER = -inf
ROUNDING = 1e-9
LEASES_OF_SILENCE = 2  # after them a broker that leads nothing counts no more
REPORTS_OF_A_ROUND = 2  # of each broker that holds its share: the second was measured under it


class FlowMaster:
    """Promise, capacity and partitions of one instance, and what its brokers have reported since this master began."""

    def __init__(
        self,
        epoch: int,
        promised: Flow,
        partitions: Mapping[int, int],
        lease_ms: int,
        now_ms: int,
        *,
        rule: str = SCALED,
        capacity_bytes: int = 0,
    ):
        self.epoch = epoch
        self.promised = promised
        self.rule = rule
        self.lease_ms = lease_ms
        self.capacity_bytes = capacity_bytes  # 0: without end
        self.is_full: bool | None = None  # unknown until all have reported
        self.partitions = dict(partitions)  # by the broker that leads them
        self.rounds = [Distribution(FAIR, fair_shares(each, partitions)) for each in promised]
        self._began_ms = now_ms
        fair = self._fair()
        self._brokers = {
            broker: _Reporting(Grant(0, fair[broker], fair[broker], now_ms, NEVER), now_ms) for broker in fair
        }

    def set_partitions(self, partitions: Mapping[int, int]) -> None:
        """Take how many partitions each broker leads now; the next round begins from F."""
        self.partitions = dict(partitions)
        self.rounds = [Distribution(FAIR, fair_shares(each, partitions)) for each in self.promised]
        for broker in partitions:
            self._brokers.setdefault(broker, _unheard()).held_count = 0

    def take(self, report: Report, now_ms: int) -> Share | None:
        """Return the answer to a report; None if the report is late, repeated, or of nobody who has partitions."""
        if report.broker in self.partitions:  # it may have been taken to be gone
            self._brokers.setdefault(report.broker, _unheard())
        known = self._brokers.get(report.broker)
        if known is None or not known.take(report, self.epoch):
            return None
        known.seen_ms = now_ms
        self._forget_the_gone(now_ms)
        self._look_at_capacity()
        held = known.held
        if (
            held
            and held.sent_ms >= self._began_ms + self.lease_ms
            and held.flow == self._targets(now_ms)[report.broker]
        ):
            known.held_count += 1
        led = [self._brokers[broker] for broker, count in self.partitions.items() if count]
        if self._is_settled(now_ms) and all(each.held_count >= REPORTS_OF_A_ROUND for each in led):
            self._begin_round()
        return self._grant(known, report, now_ms)

    def rows(self) -> list[dict[str, Any]]:
        """Return what there is to see of each broker; flows in bytes a second, None where nothing is promised."""
        fair, rows = self._fair(), []
        for broker, known in sorted(self._brokers.items()):
            report, granted = known.report, known.grants[-1].flow
            row: dict[str, Any] = {"broker": broker, "partitions": self.partitions.get(broker, 0)}
            for index, direction in enumerate(Flow._fields):
                row[direction] = {
                    "promised": _finite(self.promised[index]),
                    "step": self.rounds[index].step,
                    "fair": _finite(fair[broker][index]),
                    "share": _finite(granted[index]),
                    "used": None if report is None else report.used[index],
                }
            row["stored_bytes"] = None if report is None else report.stored_bytes
            rows.append({**row, "capacity_bytes": self.capacity_bytes, "is_full": bool(self.is_full)})
        return rows

    def _forget_the_gone(self, now_ms: int) -> None:
        """Let others have what those had who lead nothing any more and have not been heard of for long."""
        before_ms = now_ms - LEASES_OF_SILENCE * self.lease_ms
        for broker, known in list(self._brokers.items()):
            if known.seen_ms < before_ms and not self.partitions.get(broker):
                del self._brokers[broker]

    def _begin_round(self) -> None:
        reports = [(broker, known.report) for broker, known in self._brokers.items() if broker in self.partitions]
        for index, promised in enumerate(self.promised):
            flows = {broker: report.used[index] for broker, report in reports if report}
            self.rounds[index] = distribute(promised, self.partitions, flows, self.rule, self.rounds[index])
        for each in self._brokers.values():
            each.held_count = 0

    def _grant(self, known: _Reporting, report: Report, now_ms: int) -> Share:
        target, fair = self._targets(now_ms)[report.broker], self._fair()[report.broker]
        others = [each.most(now_ms, self.lease_ms) for broker, each in self._brokers.items() if broker != report.broker]
        flows = []
        for index, promised in enumerate(self.promised):
            left = shares_total_max(promised, self.partitions, self.rule)
            if promised != inf:
                left = max(left - sum(most[index] for most in others), 0.0)
            # Sums of floats differ in their last digits.
            flows.append(target[index] if left >= target[index] * (1 - ROUNDING) else left)
        heard_ms = NEVER if known.held is None else known.held.sent_ms
        grant = Grant(known.last_number + 1, Flow(*flows), fair, now_ms, heard_ms)
        known.grants.append(grant)
        known.last_number = grant.number
        only_lowers = now_ms < self._began_ms + self.lease_ms
        return Share(
            *(self.epoch, grant.number, report.broker_epoch, report.sequence, grant.flow, fair),
            *(only_lowers, self.is_full),
        )

    def _targets(self, now_ms: int) -> dict[int, Flow]:
        """Return what each broker is to have: by the distribution, or F at most while one may have lost its master."""
        fair = self._fair()
        shares = {broker: Flow(*(each.shares.get(broker, 0.0) for each in self.rounds)) for broker in fair}
        if self._is_settled(now_ms):
            return shares
        return {broker: Flow(*map(min, shares[broker], fair[broker])) for broker in fair}

    def _is_settled(self, now_ms: int) -> bool:
        """Whether all that have partitions are known to have heard of this master within the lease."""
        led = (self._brokers[broker] for broker, count in self.partitions.items() if count)
        return all(each.heard_ms >= now_ms - self.lease_ms for each in led)

    def _fair(self) -> dict[int, Flow]:
        produced, fetched = (fair_shares(each, self.partitions) for each in self.promised)
        return {
            broker: Flow(produced.get(broker, 0.0), fetched.get(broker, 0.0))
            for broker in (self.partitions | getattr(self, "_brokers", {}))
        }

    def _look_at_capacity(self) -> None:
        reports = [self._brokers[broker].report for broker, count in self.partitions.items() if count]
        if not self.capacity_bytes or None in reports:
            self.is_full = None if self.capacity_bytes else False
            return
        stored_bytes = sum(each.stored_bytes for each in reports if each)
        if stored_bytes >= self.capacity_bytes:
            self.is_full = True
        elif not self.is_full or stored_bytes * 100 < self.capacity_bytes * REOPENED_PERCENT:
            self.is_full = False


def _finite(flow: float) -> float | None:
    return None if flow == inf else flow


def _unheard() -> _Reporting:
    return _Reporting(Grant(0, NO_FLOW, NO_FLOW, 0, NEVER), NEVER)


class Grant(NamedTuple):
    """A share that one broker was given, by this master's time."""

    number: int
    flow: Flow
    fair: Flow
    sent_ms: float
    heard_ms: float  # when the report that it answers had not left yet: sent_ms of the grant in force then


class _Reporting:
    """One broker as the master knows it."""

    def __init__(self, first: Grant, seen_ms: float):
        self.seen_ms = seen_ms  # when its last report came, or since when it is known
        self.report: Report | None = None  # the last one
        self.last_number = 0  # of its grants
        self.grants = [first]  # that may be in force, the oldest first
        self.held: Grant | None = None  # that is in force, or was when the last report left
        self.held_count = 0  # reports since its part of the round is in force
        self.heard_ms = NEVER  # its lease began no earlier than this

    def take(self, report: Report, epoch: int) -> bool:
        last = self.report
        if last and (report.broker_epoch, report.sequence) <= (last.broker_epoch, last.sequence):
            return False
        if last and report.broker_epoch > last.broker_epoch:
            # It has started anew, with nothing, and takes nothing that it was given before.
            self.held, self.held_count, self.heard_ms = None, 0, NEVER
            self.grants = [Grant(self.last_number, NO_FLOW, self.grants[-1].fair, NEVER, NEVER)]
        self.report = report
        if report.master_epoch == epoch:
            self.grants = [each for each in self.grants if each.number >= report.number]
            self.held = next((each for each in self.grants if each.number == report.number), None)
            if self.held is not None:
                self.heard_ms = max(self.heard_ms, self.held.heard_ms)
        return True

    def most(self, now_ms: int, lease_ms: int) -> Flow:
        """Return the most that it may use before it falls back to F, and forget how grants differ that have ended."""
        ended = [each for each in self.grants if each.sent_ms + lease_ms <= now_ms]
        if len(ended) > 1:
            flow = Flow(*(max(each.flow[index] for each in ended) for index in (0, 1)))
            fair = Flow(*(max(each.fair[index] for each in ended) for index in (0, 1)))
            merged = Grant(ended[-1].number, flow, fair, ended[-1].sent_ms, ended[-1].heard_ms)
            self.grants = [merged, *(each for each in self.grants if each not in ended)]
        return Flow(
            *(
                max(
                    min(each.flow[index], each.fair[index]) if each.sent_ms + lease_ms <= now_ms else each.flow[index]
                    for each in self.grants
                )
                for index in (0, 1)
            )
        )

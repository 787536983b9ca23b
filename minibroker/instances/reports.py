"""Reports of brokers to the master, its answers, and what a broker may use of one instance: `ShareHolder`.

Reports and answers may come late, twice or never. Each broker numbers its reports, and an answer says which one it
answers; the master numbers its answers, and a report says which one is in force. What is older than what is known
already is passed over, on both sides.

A share holds for a lease, counted from when the report left that it answers. Then the broker has lost its master:

    until 1 lease    the share
    until 2 leases   the smaller of the share and F
    from then on     F

The second line is there for others: until then nobody may have more than its F any more (master.py), so the shares
that are in force never come to more than the rule allows. A broker that starts has a share of 0, which an answer
replaces at once.
What must hold: time is steady, and goes equally fast at brokers and master; where it began does not matter.
Not here: how flow is measured, how messages travel.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple


class Flow(NamedTuple):
    """Bytes a second, of producers and to consumers; infinite where nothing is promised."""

    produced: float
    fetched: float


NO_FLOW = Flow(0.0, 0.0)


class Report(NamedTuple):
    """What one broker has measured of one instance."""

    broker: int
    broker_epoch: int  # rises with each start of the broker
    sequence: int  # rises with each report of this start, from 1
    master_epoch: int  # of the share in force, and its number; 0 without one
    number: int
    used: Flow  # since the report before
    stored_bytes: int  # in partitions that it leads


class Share(NamedTuple):
    """What one broker may use of one instance, in both directions: the answer to a report."""

    master_epoch: int  # rises with each new master
    number: int  # rises with each answer of this master to this broker, from 1
    broker_epoch: int
    sequence: int  # of the report that it answers
    flow: Flow
    fair: Flow  # F, for when the master is lost
    only_lowers: bool  # the master is new: what is in force and is less stays
    is_full: bool | None  # whether producing is held back; None: the master does not know yet


class ShareHolder:
    """What one broker may use of one instance, whatever becomes of the master."""

    def __init__(self, broker: int, broker_epoch: int, fair: Flow, lease_ms: int, now_ms: int):
        self.broker = broker
        self.broker_epoch = broker_epoch
        self.fair = fair  # by the broker's own metadata, until an answer comes
        self.lease_ms = lease_ms
        self.is_full = False  # as the master said last, and nobody else says
        self._share = NO_FLOW
        self._leased_ms = now_ms
        self._master_epoch = self._number = 0
        self._sequence = self._answered_sequence = 0
        self._sent_ms: dict[int, int] = {}  # of reports whose answer would still be taken

    def flow(self, now_ms: int) -> Flow:
        """Return what may be used now."""
        age_ms = now_ms - self._leased_ms
        if age_ms >= 2 * self.lease_ms:
            return self.fair
        share = self._share if age_ms < self.lease_ms else _smaller(self._share, self.fair)
        return Flow(*(inf if fair == inf else most for most, fair in zip(share, self.fair, strict=True)))

    def report(self, used: Flow, stored_bytes: int, now_ms: int) -> Report:
        """Return the next report; it is due on every interval, whatever became of the last."""
        self._sequence += 1
        self._sent_ms = {each: at for each, at in self._sent_ms.items() if now_ms - at < self.lease_ms}
        self._sent_ms[self._sequence] = now_ms
        epoch, number = self._master_epoch, self._number
        return Report(self.broker, self.broker_epoch, self._sequence, epoch, number, used, stored_bytes)

    def take(self, share: Share, now_ms: int) -> bool:
        """Put an answer into force; return False if it is late, repeated or somebody else's."""
        sent_ms = self._sent_ms.get(share.sequence)
        if share.broker_epoch != self.broker_epoch or share.master_epoch < self._master_epoch:
            return False
        if sent_ms is None or now_ms - sent_ms >= self.lease_ms or share.sequence <= self._answered_sequence:
            return False
        self._share = _smaller(self.flow(now_ms), share.flow) if share.only_lowers else share.flow
        self.fair = share.fair
        self._leased_ms = sent_ms
        self._master_epoch, self._number = share.master_epoch, share.number
        self._answered_sequence = share.sequence
        if share.is_full is not None:
            self.is_full = share.is_full
        return True


def _smaller(one: Flow, other: Flow) -> Flow:
    return Flow(min(one.produced, other.produced), min(one.fetched, other.fetched))

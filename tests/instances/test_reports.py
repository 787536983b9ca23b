"""What a broker takes of the master's answers, and for how long it holds."""

from __future__ import annotations

from minibroker.instances.reports import NO_FLOW, Flow, Share, ShareHolder

FAIR = Flow(50.0, 50.0)
LEASE_MS = 100


def answer(sequence: int, produced: float, *, epoch: int = 1, broker_epoch: int = 1) -> Share:
    return Share(epoch, sequence, broker_epoch, sequence, Flow(produced, 10.0), FAIR, False, None)


def test_a_broker_has_nothing_until_it_is_answered_and_f_after_two_leases() -> None:
    holder = ShareHolder(1, 1, FAIR, LEASE_MS, 0)
    assert [holder.flow(at_ms) for at_ms in (0, 199, 200)] == [NO_FLOW, NO_FLOW, FAIR]


def test_answers_that_are_late_repeated_or_of_others_are_passed_over() -> None:
    holder = ShareHolder(1, 1, FAIR, LEASE_MS, 0)
    for _ in range(3):
        holder.report(NO_FLOW, 0, 0)
    assert holder.take(answer(2, 70.0, epoch=2), 10)
    assert not holder.take(answer(2, 71.0, epoch=2), 10)  # repeated
    assert not holder.take(answer(1, 72.0, epoch=2), 10)  # older
    assert not holder.take(answer(3, 73.0, epoch=1), 10)  # of an older master
    assert not holder.take(answer(3, 74.0, epoch=2, broker_epoch=7), 10)  # for another start
    assert not holder.take(answer(4, 75.0, epoch=2), 10)  # of no report
    assert not holder.take(answer(3, 76.0, epoch=2), LEASE_MS)  # its lease has ended before it came
    assert holder.flow(10).produced == 70.0


def test_a_lease_counts_from_when_the_report_left() -> None:
    holder = ShareHolder(1, 1, FAIR, LEASE_MS, 0)
    holder.report(NO_FLOW, 0, 20)
    assert holder.take(answer(1, 70.0), 90)
    assert [holder.flow(at_ms).produced for at_ms in (119, 120, 219, 220)] == [70.0, 50.0, 50.0, 50.0]
    assert [holder.flow(at_ms).fetched for at_ms in (119, 120, 219, 220)] == [10.0, 10.0, 10.0, 50.0]

"""Less of a plan that still fails: fewer faults, shorter ones, a calm network.

What must hold: the result fails as the whole did, and is the same in every process: runs are counted, not seconds.
"""

from __future__ import annotations

from minibroker.embedded.simulated.plan import CALM_MS, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from minibroker.embedded.simulated.plan import Fault

RUNS_MAX = 60


def shrunk(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """Return the least that was found; fails: runs a plan and says whether it fails, too."""
    runs = 0
    tried = {plan}

    def is_enough(candidate: Plan) -> bool:
        nonlocal runs
        if candidate in tried or runs >= RUNS_MAX:
            return False
        tried.add(candidate)
        runs += 1
        return fails(candidate)

    while smaller := next(filter(is_enough, _smaller(plan)), None):
        plan = smaller
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Yield plans that are a step smaller, the boldest first."""
    faults = plan.faults
    if faults:
        yield Plan()
        yield plan._replace(faults=())
    size = len(faults) // 2
    while size:
        for begin in range(0, len(faults), size):
            yield plan._replace(faults=faults[:begin] + faults[begin + size :])
        size //= 2
    yield plan._replace(delay_ms=CALM_MS, piece_bytes=0)
    yield plan._replace(delay_ms=CALM_MS)
    yield plan._replace(piece_bytes=0)
    for index, fault in enumerate(faults):
        for shorter in _shorter(fault):
            yield plan._replace(faults=(*faults[:index], shorter, *faults[index + 1 :]))


def _shorter(fault: Fault) -> Iterator[Fault]:
    if fault.for_ms:
        yield fault._replace(for_ms=0.0)
    if fault.for_ms > 100:
        yield fault._replace(for_ms=float(round(fault.for_ms / 2, -2)))
    if fault.delay_ms:
        yield fault._replace(delay_ms=0.0)

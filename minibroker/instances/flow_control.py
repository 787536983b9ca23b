"""Distribution of an instance's promised flow among its brokers, in one direction, by the rules of CKafka's article.

    step 1  F = the broker's part of the promise, by its partitions
    step 2  every broker is below 80 % of its F: each may have its F
    step 3  else P = the broker's part of the promise, by its measured flow
    step 4  Pmin/Pmax >= 80 %: each may have its P
    step 5  else the largest may have its P, and each other one min(P + Pmax * 10 %, Pmax)

Step 5 taken literally promises more than there is. So there are two rules: `ckafka` is the article's own, `scaled` the
same with the shares of step 5 made smaller, all by one factor, until they come to the promise. What must hold, whatever
is measured:

    scaled  the shares come to the promise
    ckafka  they come to at most promise * (1 + (n - 1) / 10), n brokers having partitions
    both    a broker that has partitions gets more than 0; if demand stays as it is, so do the shares in the end

The last does not follow from the text: scaled, step 5 takes from the largest what step 4 gives back, and what a share
itself holds below 80 % of F looks like idleness to step 2; both go round for ever. So `scaled` looks at the
distribution before, if there is one. Who uses up a share is not below 80 % of F for want of work; and step 4 follows
step 5 only when all use up their shares, for then it takes nothing back.

Left open by the text: 80 % exactly is not below 80 %. Without any flow all are below 80 % (step 2). A broker without
partitions gets 0, and flow that it still reports does not count. Several that are largest each get their P.
Not here: which flows are measured, and when shares come into force.
"""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Flows = Mapping[int, float]  # bytes a second, by broker

SCALED, CKAFKA = "scaled", "ckafka"
RULES: Final = (SCALED, CKAFKA)

FAIR, EVEN, UNEVEN = "F", "P", "P + 10 %"  # steps 2, 4, 5

BUSY: Final = 0.80  # of F; below it a broker has enough by its F
ALIKE: Final = 0.80  # Pmin/Pmax from which on brokers are used evenly
BONUS: Final = 0.10  # of Pmax, for others than the largest
USED_UP: Final = 0.95  # of a share; from here on more might be used if more were allowed


class Distribution(NamedTuple):
    """What each broker may have, and the step that says so."""

    step: str
    shares: dict[int, float]


def distribute(
    promised: float,
    partitions: Mapping[int, int],
    flows: Flows,
    rule: str = SCALED,
    before: Distribution | None = None,
) -> Distribution:
    """Return how a promise is shared; `flows` were measured while the distribution before was in force.

    A broker that has not said what it uses counts as one that uses nothing.
    """
    fair = fair_shares(promised, partitions)
    used = {broker: flows.get(broker, 0.0) for broker in fair if fair[broker]}
    if rule == CKAFKA or before is None:
        before = Distribution(FAIR, {})
    held = [broker for broker, flow in used.items() if flow >= USED_UP * before.shares.get(broker, inf)]
    is_idle = all(flow < BUSY * fair[broker] for broker, flow in used.items())
    if promised == inf or (is_idle and not held):
        return Distribution(FAIR, fair)
    total = sum(used.values())
    parts = {broker: promised * flow / total for broker, flow in used.items()}
    is_even = min(used.values()) >= ALIKE * max(used.values())
    if is_even and (before.step != UNEVEN or len(held) == len(used)):
        return Distribution(EVEN, {broker: parts.get(broker, 0.0) for broker in fair})
    most = max(parts.values())
    raised = {broker: min(part + BONUS * most, most) for broker, part in parts.items()}  # the largest: its P
    factor = promised / sum(raised.values()) if rule == SCALED else 1.0
    return Distribution(UNEVEN, {broker: raised.get(broker, 0.0) * factor for broker in fair})


def fair_shares(promised: float, partitions: Mapping[int, int]) -> dict[int, float]:
    """Return F of each broker: its part of a promise by its partitions."""
    total = sum(partitions.values())
    if promised == inf:
        return dict.fromkeys(partitions, inf)
    return {broker: promised * count / total if count else 0.0 for broker, count in partitions.items()}


def shares_total_max(promised: float, partitions: Mapping[int, int], rule: str) -> float:
    """Return what the shares of all brokers come to at most."""
    count = sum(1 for each in partitions.values() if each)
    return promised if rule == SCALED else promised * (1 + max(count - 1, 0) * BONUS)

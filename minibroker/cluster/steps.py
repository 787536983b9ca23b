"""Step mode: replication waits for tokens, so that it can be watched move by move.

    fetch      a follower's fetch reaches its leader: the leader learns how far it is, and may move the high watermark
    answer     the answer reaches the follower: it appends, cuts, learns the high watermark
    isr        a leader's proposal of another ISR reaches the controller
    election   the controller fences a broker that is gone, and others lead what it led
    metadata   a broker learns what the controller has decided

What must hold: what waits is in the order in which it came; without a hold nothing waits.
"""

from __future__ import annotations

from minibroker.replication.gate import Gate
from minibroker.replication.link import CONTROLLER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from minibroker.cluster.cluster import Cluster
    from minibroker.replication.link import Letter

KINDS = ("fetch", "answer", "isr", "election", "metadata")
USUAL = ("fetch", "answer", "isr", "election")  # what brokers learn of decisions goes on by itself
MESSAGES = {
    "fetch": ("FetchRequest", False),
    "answer": ("FetchResponse", False),
    "isr": ("AlterPartitionRequest", True),
    "metadata": ("FetchResponse", True),
}  # what is held, and whether the controller is at one end


class NothingWaits(ValueError):
    """There is nothing that could take a step."""


class Steps:
    """The gates of a cluster."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.gates: dict[str, Gate] = {}
        self.election = Gate("election", cluster.events)

    def hold(self, kinds: Iterable[str] = (), *, broker: int | None = None) -> None:
        """Let these, or the usual ones, wait for tokens; broker: only those of one follower, or leader for "isr"."""
        for kind in kinds or USUAL:
            if kind not in KINDS:
                raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")
            self.release([kind])
            if kind == "election":
                self.gates[kind] = self.election
                self.election.close()
                continue
            self.gates[kind] = self._hold(kind, broker)

    def _hold(self, kind: str, broker: int | None) -> Gate:
        name, with_controller = MESSAGES[kind]

        def fits(letter: Letter) -> bool:
            ends = (letter.link.source, letter.link.target)
            follower = letter.call.source
            return letter.name == name and (CONTROLLER in ends) == with_controller and broker in (None, follower)

        return self.cluster.network.hold_where(kind, fits)

    def release(self, kinds: Iterable[str] | None = None) -> None:
        """Let these wait no more, or nothing at all; what waited goes on."""
        for kind in list(self.gates) if kinds is None else kinds:
            gate = self.gates.pop(kind, None)
            if gate is self.election:
                self.election.open()
            elif gate is not None:
                self.cluster.network.release(gate)

    @property
    def waiting(self) -> list[tuple[str, str]]:
        """What waits: its kind, and what it is."""
        return [(kind, held.what) for kind, gate in self.gates.items() for held in gate.waiting]

    def step(self, kind: str | None = None, count: int = 1) -> list[str]:
        """Give tokens to what waits, of one kind or of any; return what went on."""
        passed = []
        for _ in range(count):
            gate = self._next(kind)
            if gate is None:
                break
            passed.append(gate.waiting[0].what)
            gate.step()
        if not passed:
            held = ", ".join(self.gates) or "nothing: hold something first"
            raise NothingWaits(f"no {kind or 'step'} waits; held are {held}")
        return passed

    def _next(self, kind: str | None) -> Gate | None:
        """Return a gate with somebody in front; of any kind, that of the move that Kafka would make first."""
        kinds = list(self.gates) if kind is None else [kind]
        return next((self.gates[each] for each in kinds if each in self.gates and self.gates[each].waiting), None)

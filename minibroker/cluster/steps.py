"""Step mode: replication waits for tokens, so that it can be watched move by move.

    fetch      a follower's fetch reaches its leader: the leader learns how far it is, and may move the high watermark
    answer     the answer reaches the follower: it appends, cuts, learns the high watermark
    isr        a leader's proposal of another ISR reaches the controller
    election   the controller fences a broker that is gone, and others lead what it led
    metadata   a broker learns what the controller has decided
    marker     the marker of a transaction that has ended reaches the leader of one of its partitions

What must hold: what waits is in the order in which it came; without a hold nothing waits.
"""

from __future__ import annotations

from minibroker.cluster.nodes import Nodes
from minibroker.replication.gate import Gate
from minibroker.replication.network import CONTROLLER, Letter

KINDS = ("fetch", "answer", "isr", "election", "metadata", "marker")
USUAL = ("fetch", "answer", "isr", "election")  # decisions of the controller and markers go on
MESSAGES = {
    "fetch": ("FetchRequest", False),
    "answer": ("FetchResponse", False),
    "isr": ("AlterPartitionRequest", True),
    "metadata": ("FetchResponse", True),
    "marker": ("WriteTxnMarkersRequest", False),
}  # what is held, and whether the controller is at one end


class NothingWaits(ValueError):
    """There is nothing that could take a step."""


class Steps:
    """What can be done at the gates of a cluster."""

    def __init__(self, cluster: Nodes):
        self.cluster = cluster
        self.gates = cluster.gates

    def hold(self, *kinds: str, broker: int | None = None) -> list[str]:
        """Let fetch, answer, isr, election, metadata or marker wait for tokens; without any, all but the last two.

        broker: only those of one follower, for "isr" of one leader, for "marker" of one coordinator. Returns all that
        is held.
        """
        for kind in kinds or USUAL:
            if kind not in KINDS:
                raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")
            self.release(kind)
            if kind == "election":
                self.gates[kind] = self.cluster.election
                self.cluster.election.close()
            else:
                self.gates[kind] = self._hold(kind, broker)
        return list(self.gates)

    def _hold(self, kind: str, broker: int | None) -> Gate:
        name, with_controller = MESSAGES[kind]

        def fits(letter: Letter) -> bool:
            ends = (letter.link.source, letter.link.target)
            follower = letter.call.source
            return letter.name == name and (CONTROLLER in ends) == with_controller and broker in (None, follower)

        return self.cluster.network.hold(kind, fits)

    def release(self, *kinds: str) -> None:
        """Let these wait no more, or nothing at all; what waited goes on."""
        for kind in kinds or list(self.gates):
            gate = self.gates.pop(kind, None)
            if gate is self.cluster.election:
                self.cluster.election.open()
            elif gate is not None:
                self.cluster.network.release(gate)

    def step(self, kind: str | None = None, count: int = 1) -> list[str]:
        """Let what waits longest go on, of one kind or of any; return what it was.

        NothingWaits if nothing does.
        """
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

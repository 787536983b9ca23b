"""The cables of a cluster: between brokers, to the controller, and to the clients.

The ends are brokers by their ids, "controller", and "clients": all who come through a port.
What must hold: to a client a broker that is cut off looks as a machine whose cable is out: nothing comes, nothing is
taken, no connection ends.
"""

from __future__ import annotations

from minibroker.event_kinds import Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from minibroker.cluster.nodes import Nodes
    from minibroker.replication.network import NodeId

CLIENTS = "clients"


class Links:
    """What can be done to the links of a cluster."""

    def __init__(self, cluster: Nodes):
        self.cluster = cluster
        self.network = cluster.network

    def cut(self, a: NodeId, b: NodeId, *, one_way: bool = False) -> None:
        """Let nothing through between two: brokers, "controller", "clients"; one_way: only from a to b."""
        broker = self._broker_of_clients(a, b)
        if broker is None:
            self._check(a, b)
            self.network.cut(a, b, one_way=one_way)
        elif broker not in self.cluster.cut_from_clients:
            self.cluster.cut_from_clients[broker] = None
            self.apply(broker)
            self._tell(broker, "cut")

    def heal(self, a: NodeId | None = None, b: NodeId | None = None, *, one_way: bool = False) -> None:
        """Undo the cuts between two, or of one to everybody, or all there are."""
        if a is None:
            self.network.heal_all()
            for each in list(self.cluster.cut_from_clients):
                self._heal_clients(each)
            return
        others = [b] if b is not None else [each for each in (*self.cluster.states, CLIENTS) if each != a]
        for other in others:
            broker = self._broker_of_clients(a, other)
            if broker is not None:
                self._heal_clients(broker)
            elif CLIENTS not in (a, other):
                self._check(a, other)
                self.network.heal(a, other, one_way=one_way)

    def isolate(self, broker: NodeId) -> None:
        """Cut a broker off from everybody, clients too."""
        for other in (*self.cluster.states, CLIENTS):
            if other != broker and not (isinstance(broker, str) and other == CLIENTS):
                self.cut(broker, other)

    def split(self, *groups: Iterable[NodeId]) -> None:
        """Cut every link from one group to another: split([1, "controller"], [2, 3])."""
        members = [list(group) for group in groups]
        for number, group in enumerate(members):
            for other in members[number + 1 :]:
                for a in group:
                    for b in other:
                        self.cut(a, b)

    def delay(self, a: NodeId, b: NodeId, ms: float, *, jitter_ms: float = 0, one_way: bool = False) -> None:
        """Let messages between two take so long, and up to the jitter longer; 0 undoes it."""
        self._check(a, b)
        self.network.delay(a, b, ms, jitter_ms, one_way=one_way)

    def throttle(self, a: NodeId, b: NodeId, bytes_per_s: int, *, one_way: bool = False) -> None:
        """Let so many bytes a second through between two; 0 is any number."""
        self._check(a, b)
        self.network.throttle(a, b, bytes_per_s, one_way=one_way)

    def lose(self, a: NodeId, b: NodeId, share: float, *, one_way: bool = False) -> None:
        """Lose a share of the messages between two, 0 to 1."""
        self._check(a, b)
        self.network.lose(a, b, share, one_way=one_way)

    # Clients

    def apply(self, broker: int) -> None:
        """Have a broker see of its clients what it is to see: after a cut, and after its start."""
        node = self.cluster.nodes.get(broker)
        if node is not None and broker in self.cluster.cut_from_clients:
            for server in node.servers:
                server.pause()

    def _heal_clients(self, broker: int) -> None:
        if broker in self.cluster.cut_from_clients:
            del self.cluster.cut_from_clients[broker]
            node = self.cluster.nodes.get(broker)
            if node is not None and self.cluster.states[broker] == "running":
                for server in node.servers:
                    server.resume()
            self._tell(broker, "healed")

    def _broker_of_clients(self, a: NodeId | None, b: NodeId | None) -> int | None:
        """Return the broker at the other end of a link to the clients, None if it is no such link."""
        for one, other in ((a, b), (b, a)):
            if one == CLIENTS and isinstance(other, int):
                self._check(other)
                return other
        return None

    def _check(self, *ends: NodeId) -> None:
        for end in ends:
            self.cluster.check(end)

    def _tell(self, broker: int, state: str) -> None:
        events = self.cluster.events
        if events.observed:
            events.emit(Link(source=CLIENTS, target=str(broker), state=state))

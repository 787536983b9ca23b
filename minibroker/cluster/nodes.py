"""The nodes of a cluster: brokers and their controller, the state of each, their disks and the network between them.

Whatever is done to a cluster (cluster.py, links.py, disks.py, steps.py, cleaning.py), waits for it (waits.py) or looks
at it (snapshot.py, groups.py, view_source.py) is built on this and not on each other.
"""

from __future__ import annotations

from minibroker.errors import Error, KafkaError
from minibroker.replication.gate import Gate
from minibroker.replication.network import CONTROLLER, Network

TYPE_CHECKING = False
if TYPE_CHECKING:
    from random import Random

    from minibroker.broker.broker import Node
    from minibroker.clock import Clock
    from minibroker.cluster.controller_server import ControllerNode
    from minibroker.events import EventStream
    from minibroker.log.storage import Storage
    from minibroker.metadata.image import Partition, Topic
    from minibroker.replication.network import NodeId
    from minibroker.replication.replica import Replica

RUNNING, PAUSED, STOPPED, KILLED = "running", "paused", "stopped", "killed"
STARTING, STOPPING = "starting", "stopping"


class NoSuchBroker(ValueError):
    """There is no broker of that name, or it is not in the state that the verb needs."""


class WrongState(NoSuchBroker):
    """There is such a broker, and it is in another state than the verb needs: killed already, or still running."""


class Nodes:
    """Brokers by their ids, and "controller"."""

    controller: ControllerNode

    def __init__(self, *, clock: Clock, chance: Random, events: EventStream):
        self.clock = clock
        self.chance = chance
        self.events = events
        self.network = Network(clock, chance, events)
        self.nodes: dict[int, Node] = {}  # that were started, whatever has become of them
        self.states: dict[NodeId, str] = {}
        self.storages: dict[NodeId, Storage] = {}
        self.cut_from_clients: dict[int, None] = {}  # see links.py
        self.election = Gate("election", events)
        self.gates: dict[str, Gate] = {}  # what is held, see steps.py

    @property
    def broker_ids(self) -> list[int]:
        return [who for who in self.states if isinstance(who, int)]

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker that was started, for clients."""
        return ",".join(filter(None, (node.bootstrap_servers for _, node in sorted(self.nodes.items()))))

    def check(self, who: NodeId, *states: str) -> str:
        """Return the state of a node; raise NoSuchBroker, or WrongState unless it is one of these."""
        state = self.states.get(who)
        if state is None:
            raise NoSuchBroker(f"there is no broker {who!r}: there are {', '.join(map(str, self.states))}")
        if states and state not in states:
            raise WrongState(f"{name_of(who)} is {state}; it would have to be {' or '.join(states)}")
        return state

    def running_controller(self) -> ControllerNode:
        self.check(CONTROLLER, RUNNING)
        return self.controller

    def topic(self, name: str) -> Topic:
        """Return a topic as the controller has it."""
        found = self.controller.image.topics.get(name)
        if found is None:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return found

    def partition(self, topic: str, partition: int) -> Partition:
        """Return a partition as the controller has it."""
        partitions = self.topic(topic).partitions
        if not 0 <= partition < len(partitions):
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition} of {topic!r}")
        return partitions[partition]

    def replica(self, topic: str, partition: int, broker: int) -> Replica | None:
        """Return a replica of a broker that runs."""
        node = self.nodes.get(broker)
        return None if node is None else node.replicas.get((topic, partition))

    def leader(self, topic: str, partition: int) -> Replica | None:
        """Return the replica that leads and knows it."""
        found = self.replica(topic, partition, self.partition(topic, partition).leader)
        return found if found is not None and found.is_leader else None

    def waiting(self) -> list[tuple[str, str]]:
        """Return what waits for a token: its kind, and what it is."""
        return [(kind, held.what) for kind, gate in self.gates.items() for held in gate.waiting]


def name_of(who: NodeId) -> str:
    return f"broker {who}" if isinstance(who, int) else f"the {who}"

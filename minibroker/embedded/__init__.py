"""Brokers inside a Python program: `minibroker.Broker` and `minibroker.Cluster`.

broker.py          one broker, as people use it: the same verbs wherever it runs
in_process.py      a broker in a running loop
process.py         a broker in a process of its own; remote.py: what is asked over the wire
snapshot.py        what a broker has stored at one moment, for others that go on from there
attached.py        a broker that somebody else runs; outside.py: lending one to a test
cluster.py         several brokers, as people use them
cluster_engine.py  a cluster in a running loop; cluster_views.py: what a program sees of it
watching.py        its events, heard from any thread
hosted.py          what both have in common: start and stop, in a thread or in the caller's loop; verbs and their twins
engine.py          the verbs of a broker, as both kinds of it have them; reading.py: its records
expectations.py    what a test expects to find in a topic; writing.py: what it puts there
overview.py        what is shown when a test has failed
background.py      a loop in a thread, for programs without one
forking.py         what becomes of them when the program forks
faults.py          what the clients of a broker shall meet
arguments.py       arguments of Python as settings of Kafka
"""

from minibroker.embedded.broker import Broker
from minibroker.embedded.engine import BrokerError
from minibroker.embedded.record import Record
from minibroker.faults import FaultError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.cleaner.results import CompactionRow as CompactionRow
    from minibroker.cleaner.results import RetentionRow as RetentionRow
    from minibroker.cleaner.results import RollRow as RollRow
    from minibroker.embedded.cluster import Cluster as Cluster
    from minibroker.embedded.cluster_views import ReplicaRow as ReplicaRow
    from minibroker.embedded.snapshot import BrokerSnapshot as BrokerSnapshot
    from minibroker.groups.view_rows import GroupView as GroupView
    from minibroker.transactions.view_rows import TransactionView as TransactionView

__all__ = [
    "Broker",
    "BrokerError",
    "BrokerSnapshot",
    "Cluster",
    "CompactionRow",
    "FaultError",
    "GroupView",
    "Record",
    "ReplicaRow",
    "RetentionRow",
    "RollRow",
    "TransactionView",
]


def __getattr__(name: str) -> object:
    """Load what a cluster, group or transaction needs when somebody asks for one: most tests want a broker, at once."""
    if name == "Cluster":
        from minibroker.embedded.cluster import Cluster

        return Cluster
    if name == "GroupView":
        from minibroker.groups.view_rows import GroupView

        return GroupView
    if name == "TransactionView":
        from minibroker.transactions.view_rows import TransactionView

        return TransactionView
    if name in ("CompactionRow", "RetentionRow", "RollRow"):
        from minibroker.cleaner import results as cleaning_rows

        return getattr(cleaning_rows, name)
    if name == "ReplicaRow":
        from minibroker.embedded.cluster_views import ReplicaRow

        return ReplicaRow
    if name == "BrokerSnapshot":
        from minibroker.embedded.snapshot import BrokerSnapshot

        return BrokerSnapshot
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

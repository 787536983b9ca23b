"""The verbs of a cluster by their names, for HTTP, the command line and lessons.

Each is a method of the cluster or of one of its parts (broker/verb.py says what is made of that); the help of
`minibroker cluster` and the methods of `minibroker.Cluster` are made of them, too.
What must hold: those that a broker alone has as well (broker/verbs.py) take and tell the same.
"""

from __future__ import annotations

from minibroker.broker.verb import AMOUNT, Verb, row, rows, view
from minibroker.clock.steered import SteeredClock
from minibroker.cluster.cleaning import Cleaning
from minibroker.cluster.cluster import Cluster
from minibroker.cluster.disks import Disks
from minibroker.cluster.groups import Groups
from minibroker.cluster.links import Links
from minibroker.cluster.steps import Steps
from minibroker.cluster.transactions import Transactions
from minibroker.cluster.waits import Waits

__all__ = ["VERBS", "Verb"]  # for those who may know the cluster, and not its brokers
VERBS = {
    verb.name: verb
    for verb in (
        Verb("kill", Cluster.kill),
        Verb("stop", Cluster.stop),
        Verb("start", Cluster.start),
        Verb("pause", Cluster.pause),
        Verb("resume", Cluster.resume),
        Verb("fill-disk", Disks.fill, "disks"),
        Verb("slow-disk", Disks.slow, "disks"),
        Verb("heal-disk", Disks.heal, "disks"),
        Verb("cut", Links.cut, "links"),
        Verb("heal", Links.heal, "links"),
        Verb("isolate", Links.isolate, "links"),
        Verb("split", Links.split, "links"),
        Verb("delay", Links.delay, "links"),
        Verb("throttle", Links.throttle, "links"),
        Verb("lose", Links.lose, "links"),
        Verb("elect", Cluster.elect),
        Verb("move-leader", Cluster.move_leader),
        Verb("reassign", Cluster.reassign),
        Verb("retention", Cleaning.retention_now, "cleaning", as_json=rows),
        Verb("compact", Cleaning.compact_now, "cleaning", as_json=rows),
        Verb("roll", Cleaning.roll_now, "cleaning", as_json=rows),
        Verb("hold", Steps.hold, "steps"),
        Verb("release", Steps.release, "steps"),
        Verb("step", Steps.step, "steps", options=["count"]),
        Verb("waiting", Cluster.waiting),
        Verb("freeze", SteeredClock.freeze, "clock"),
        Verb("thaw", SteeredClock.thaw, "clock"),
        Verb("advance", SteeredClock.advance, "clock", names=AMOUNT),
        Verb("rate", SteeredClock.rate, "clock"),
        Verb("jump", SteeredClock.jump, "clock", names=AMOUNT),
        Verb("wait-isr", Waits.isr, "waits"),
        Verb("wait-leader", Waits.leader, "waits"),
        Verb("wait-high-watermark", Waits.high_watermark, "waits"),
        Verb("wait-in-sync", Waits.in_sync, "waits"),
        Verb("wait-group", Groups.wait_group, "groups", options=["state"], as_json=view),
        Verb("wait-committed", Groups.wait_committed, "groups"),
        Verb("groups", Groups.groups, "groups"),
        Verb("group", Groups.group, "groups", as_json=view),
        Verb("transactions", Transactions.transactions, "transactions", as_json=rows),
        Verb("transaction", Transactions.transaction, "transactions", as_json=row),
        Verb("wait-transaction", Transactions.wait_transaction, "transactions", as_json=row),
        Verb("abort-transaction", Transactions.abort_transaction, "transactions", as_json=row),
        Verb("instances", Cluster.instances),
        Verb("state", Cluster.state),
    )
}

"""The verbs of a broker that is alone, by their names: those of a cluster (cluster/verbs.py) that it can have as well.

    await call(node, "advance", {"duration": "7d"})      as POST /cluster/advance does

What must hold: a verb takes and tells the same as that of a cluster. What needs several brokers is refused in words.
"""

from __future__ import annotations

from minibroker.broker.group_view import SeenGroups
from minibroker.broker.http_calls import Refused
from minibroker.broker.transaction_view import SeenTransactions
from minibroker.broker.verb import AMOUNT, Verb, carry_out, row, rows, view
from minibroker.cleaner.scheduler import Cleaning
from minibroker.clock.steered import SteeredClock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.clock import Clock


class Alone:
    """A broker, with the parts that have its verbs."""

    noun = "broker"

    def __init__(self, node: BrokerParts):
        self.node = node

    @property
    def clock(self) -> Clock:
        return self.node.clock.behind

    @property
    def cleaning(self) -> Cleaning:
        return self.node.cleaning

    @property
    def groups(self) -> SeenGroups:
        node = self.node
        return SeenGroups(node.events, lambda: {node.node_id: node}, lambda: node.image)

    @property
    def transactions(self) -> SeenTransactions:
        node = self.node
        return SeenTransactions(node.events, lambda: {node.node_id: node}, lambda: node.image)

    def instance_rows(self) -> list[dict[str, Any]]:
        """Return a row for each instance and broker: promised, share, what is used, what is stored."""
        return self.node.instance_rows()


VERBS = {
    verb.name: verb
    for verb in (
        Verb("retention", Cleaning.retention_now, "cleaning", as_json=rows),
        Verb("compact", Cleaning.compact_now, "cleaning", as_json=rows),
        Verb("roll", Cleaning.roll_now, "cleaning", as_json=rows),
        Verb("freeze", SteeredClock.freeze, "clock"),
        Verb("thaw", SteeredClock.thaw, "clock"),
        Verb("advance", SteeredClock.advance, "clock", names=AMOUNT),
        Verb("rate", SteeredClock.rate, "clock"),
        Verb("jump", SteeredClock.jump, "clock", names=AMOUNT),
        Verb("wait-group", SeenGroups.wait_group, "groups", options=["state"], as_json=view),
        Verb("wait-committed", SeenGroups.wait_committed, "groups"),
        Verb("groups", SeenGroups.groups, "groups"),
        Verb("group", SeenGroups.group, "groups", names={"group_id": "group"}, as_json=view),
        Verb("transactions", SeenTransactions.transactions, "transactions", as_json=rows),
        Verb("transaction", SeenTransactions.transaction, "transactions", as_json=row),
        Verb("wait-transaction", SeenTransactions.wait_transaction, "transactions", as_json=row),
        Verb("abort-transaction", SeenTransactions.abort_transaction, "transactions", as_json=row),
        Verb("instances", Alone.instance_rows),
    )
}
# What only brokers of a cluster can be asked for.
OF_CLUSTERS = (
    *("kill", "stop", "start", "pause", "resume", "fill-disk", "slow-disk", "heal-disk", "cut", "heal", "isolate"),
    *("split", "delay", "throttle", "lose", "elect", "move-leader", "reassign", "hold", "release", "step", "waiting"),
    *("wait-isr", "wait-leader", "wait-high-watermark", "wait-in-sync", "state"),
)


async def call(node: BrokerParts, name: str, arguments: Mapping[str, Any]) -> Any:
    """Do what a verb says with arguments by name; Refused or KafkaError say why not."""
    verb = VERBS.get(name)
    if verb is not None:
        return await carry_out(verb, Alone(node), arguments)
    if name in OF_CLUSTERS:
        text = f"{name} is for brokers of a cluster, and this one is alone: start several with "
        raise Refused("409 Conflict", f"{text}minibroker serve --brokers 3")
    raise Refused("404 Not Found", f"there is no verb {name[:50]!r}: a broker has {', '.join(VERBS)}")

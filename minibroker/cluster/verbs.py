"""The verbs of a cluster by their names, for HTTP, the command line and lessons.

A verb is a method of the cluster or of one of its parts, and its signature is all that is known of it: what comes by
HTTP is checked against it (control.py), the help of `minibroker cluster` and the methods of `minibroker.Cluster` are
made of it. From outside a list is words behind the others, and a timeout is an option, in ms.
What must hold: the first sentence of such a method is true for whoever types it in a shell; what is so in Python alone
(names, notation, exceptions) stands below.
"""

from __future__ import annotations

from minibroker.clock.steered import SteeredClock
from minibroker.cluster.cleaning import Cleaning
from minibroker.cluster.cluster import Cluster
from minibroker.cluster.disks import Disks
from minibroker.cluster.groups import Groups
from minibroker.cluster.links import Links
from minibroker.cluster.steps import Steps
from minibroker.cluster.transactions import Transactions
from minibroker.cluster.waits import Waits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from inspect import Parameter
    from typing import Any, NamedTuple

    from minibroker.groups.view_rows import GroupView

LISTS = ("Sequence[", "Iterable[")


class Verb:
    """One verb, and how it is asked for from outside."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        part: str = "",
        *,
        options: Sequence[str] = (),
        names: Mapping[str, str] | None = None,
        as_json: Callable[[Any], Any] | None = None,
    ):
        """part: the attribute of a cluster that has the method. options: are not given by their place outside.

        names: what parameters are called outside, if otherwise. as_json: of the result; None: it is already.
        """
        self.name = name
        self.function = function
        self.part = part
        self.options = options
        self.names = names or {}
        self.as_json = as_json

    @property
    def says(self) -> str:
        """What it does, in a sentence that names its options as they are typed."""
        sentence = (self.function.__doc__ or "").partition("\n\n")[0]
        for own, outside in self.parameters():
            sentence = sentence.replace(f"; {own.name}: ", f"; --{outside.name.replace('_', '-')}: ")
        return sentence

    def of(self, cluster: Cluster) -> Callable[..., Any]:
        """Return the method of a cluster."""
        owner = getattr(cluster, self.part) if self.part else cluster
        if self.part == "clock" and not isinstance(owner, SteeredClock):
            raise ValueError("the clock of this cluster cannot be moved")
        method: Callable[..., Any] = getattr(owner, self.function.__name__)
        return method

    def parameters(self) -> list[tuple[Parameter, Parameter]]:
        """Return each parameter as it is, and as it is given from outside."""
        from inspect import signature

        _, *own = signature(self.function).parameters.values()
        return [(each, self._from_outside(each)) for each in own]

    def _from_outside(self, parameter: Parameter) -> Parameter:
        form = str(parameter.annotation)
        if parameter.name == "timeout":
            return parameter.replace(name="timeout_ms", kind=parameter.KEYWORD_ONLY)
        if form.startswith(LISTS) and parameter.kind is not parameter.VAR_POSITIONAL:
            item = form[form.index("[") + 1 : form.index("]")]
            return parameter.replace(kind=parameter.VAR_POSITIONAL, default=parameter.empty, annotation=item)
        kind = parameter.KEYWORD_ONLY if parameter.name in self.options else parameter.kind
        return parameter.replace(name=self.names.get(parameter.name, parameter.name), kind=kind)


def _rows(rows: Sequence[NamedTuple]) -> list[dict[str, Any]]:
    return [row._asdict() for row in rows]


def _row(row: NamedTuple) -> dict[str, Any]:
    return row._asdict()


def _view(view: GroupView) -> dict[str, Any]:
    from minibroker.groups.view_rows import view_as_json

    return view_as_json(view)


AMOUNT = {"amount": "duration"}
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
        Verb("retention", Cleaning.retention_now, "cleaning", as_json=_rows),
        Verb("compact", Cleaning.compact_now, "cleaning", as_json=_rows),
        Verb("roll", Cleaning.roll_now, "cleaning", as_json=_rows),
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
        Verb("wait-group", Groups.wait_group, "groups", options=["state"], as_json=_view),
        Verb("wait-committed", Groups.wait_committed, "groups"),
        Verb("groups", Groups.groups, "groups"),
        Verb("group", Groups.group, "groups", as_json=_view),
        Verb("transactions", Transactions.transactions, "transactions", as_json=_rows),
        Verb("transaction", Transactions.transaction, "transactions", as_json=_row),
        Verb("wait-transaction", Transactions.wait_transaction, "transactions", as_json=_row),
        Verb("abort-transaction", Transactions.abort_transaction, "transactions", as_json=_row),
        Verb("instances", Cluster.instances),
        Verb("state", Cluster.state),
    )
}

"""The faults of one broker: its rules and its toxics, each with a name to take it away by.

    rule = faults.add(api="Fetch", delay_ms=200)
    faults.remove(rule.id)

Rules are asked in the order in which they were set; the first that strikes decides, and those behind it do not hear of
the request. A rule that will never strike again stays, so that its counts can be read, until it is removed.
What must hold: a broker without rules does not know that there could be any: `switch` tells it of the first and of the
end of the last. Each rule set, struck or removed is an event, if anybody watches.
"""

from __future__ import annotations

from minibroker.faults import FaultError
from minibroker.protocol.registry import APIS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from random import Random
    from typing import Any

    from minibroker.events import EventStream
    from minibroker.faults.rules import Rule
    from minibroker.faults.toxics import Toxic, Toxics

RULES_MAX = 1000


class Faults:
    """Rules and toxics."""

    def __init__(
        self,
        *,
        broker: int,
        chance: Random,
        served: Container[int],
        switch: Callable[[bool], object],
        new_toxics: Callable[[], Toxics],
    ):
        """served: the APIs of the broker. switch: told whether there are rules. new_toxics: makes what keeps them."""
        self.broker = broker
        self.chance = chance
        self.rules: dict[int, Rule] = {}
        self.events: EventStream | None = None
        self.kill: Callable[[str], object] | None = None  # ends the broker as kill -9 does; None: nobody can
        self._served = served
        self._switch = switch
        self._new_toxics = new_toxics
        self._toxics: Toxics | None = None
        self._last_id = 0

    # Rules

    def add(self, /, **wanted: Any) -> Rule:
        """Set a rule, by the names of rules.MATCHERS and rules.ACTIONS; FaultError says what is wrong with it."""
        from minibroker.faults.rules import Rule

        rule = Rule(**wanted)
        if rule.api is not None and rule.api not in self._served:
            raise FaultError(f"{APIS[rule.api]} is not served by this broker")
        if rule.kill and self.kill is None:
            raise FaultError("kill: a broker that is alone cannot be killed by a rule; brokers of a cluster can")
        if len(self.rules) >= RULES_MAX:
            raise FaultError(f"there are {RULES_MAX} rules already")
        self._last_id += 1
        rule.id = self._last_id
        self.rules[rule.id] = rule
        if len(self.rules) == 1:
            self._switch(True)
        self._tell(rule, "is set")
        return rule

    def remove(self, rule_id: int) -> Rule:
        """Take a rule away; FaultError if it is not there."""
        rule = self.rules.pop(rule_id, None)
        if rule is None:
            raise FaultError(f"there is no rule {rule_id}")
        if not self.rules:
            self._switch(False)
        self._tell(rule, "is removed")
        held, rule.held = rule.held, []
        for go_on in held:
            go_on()
        return rule

    def clear(self) -> None:
        """Take every rule away."""
        for rule_id in list(self.rules):
            self.remove(rule_id)

    def strikes(self, rule: Rule) -> bool:
        """Count a request that a rule is for; return whether it is struck."""
        if not rule.strikes(self.chance):
            return False
        self._tell(rule, "strikes")
        return True

    def holds_marker(self, transactional_id: str, topic: str, partition: int, go_on: Callable[[], object]) -> bool:
        """Whether a marker that is about to be sent waits; go_on: sends it when the rule is removed."""
        for rule in list(self.rules.values()):
            if rule.fits_marker(transactional_id, topic, partition) and self.strikes(rule):
                rule.held.append(go_on)
                if rule.kill:
                    self.end(rule)
                return True
        return False

    def end(self, rule: Rule) -> None:
        """Let a rule kill the broker."""
        assert self.kill is not None  # or the rule would have been refused
        self.kill(f"rule {rule.id} for faults wants it ({rule.where})")

    # Toxics

    @property
    def toxics(self) -> dict[str, Toxic]:
        """The toxics by name."""
        return {} if self._toxics is None else self._toxics.by_name

    def add_toxic(self, /, **wanted: Any) -> Toxic:
        """Set a toxic: type, name, stream, toxicity, attributes. Connections that are open feel it too."""
        if self._toxics is None:
            self._toxics = self._new_toxics()
        toxic = self._toxics.add(**wanted)
        self._emit(toxic.name, toxic.stream, "is set")
        return toxic

    def remove_toxic(self, name: str) -> Toxic:
        """Take a toxic away; FaultError if it is not there."""
        if name not in self.toxics or self._toxics is None:
            raise FaultError(f"there is no toxic {name!r}")
        toxic = self._toxics.remove(name)
        self._emit(toxic.name, toxic.stream, "is removed")
        return toxic

    def clear_toxics(self) -> None:
        """Take every toxic away."""
        for name in list(self.toxics):
            self.remove_toxic(name)

    # Events

    def _tell(self, rule: Rule, state: str) -> None:
        if self.events is not None and self.events.observed:
            why = "a request matches" if state == "strikes" else "somebody asked for it"
            self._emit(f"{rule.id} ({rule.action})", rule.where, state, why)

    def _emit(self, fault: str, where: str, state: str, why: str = "somebody asked for it") -> None:
        if self.events is not None and self.events.observed:
            from minibroker.event_kinds import Fault

            self.events.emit(Fault(fault=fault, where=f"b{self.broker} {where}", state=state, why=why))

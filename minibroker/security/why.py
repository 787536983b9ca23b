"""A decision explained: which rules speak of a resource, what each of them says, and which one decides.

    ALLOW User:alice to READ prefix TOPIC:orders     decides
    DENY User:bob to ALL TOPIC:*                     is for another principal

For `who-may` and for tests. On the way of a request only where a denial is told.
"""

from __future__ import annotations

from minibroker.security.acls import EVERY, EVERYBODY, PATTERN_TYPES, Authorizer, Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

DECIDES: Final = "decides"
OUTWEIGHED: Final = "is outweighed by a rule that denies"
AGREES: Final = "says the same"
OTHER_PRINCIPAL: Final = "is for another principal"
OTHER_HOST: Final = "is for another host"
OTHER_OPERATION: Final = "is for another operation"


class Explanation:
    """Whether it is allowed, one sentence that says why, and what became of each rule for the resource."""

    __slots__ = ("allowed", "reason", "rules")

    def __init__(self, allowed: bool, reason: str, rules: list[tuple[Rule, str]]):
        self.allowed = allowed
        self.reason = reason
        self.rules = rules


def explain(
    authorizer: Authorizer, principal: str, host: str, operation: int, resource_type: int, name: str
) -> Explanation:
    """Decide as `Authorizer.may` does, and say why."""
    if principal in authorizer.super_users:
        return Explanation(True, f"{principal} is one of super.users, and rules do not bind it", [])
    allowed, deciding, has_rules = authorizer.acls.decide(principal, host, operation, resource_type, name)
    found = []
    for section in authorizer.acls.sections(resource_type, name):
        for rules in section.rules.values():
            found += [(rule, _verdict(rule, deciding, principal, host, operation)) for rule in rules]
    found.sort(key=lambda each: (each[1] != DECIDES, each[0].allows, each[0]))
    if deciding is not None:
        word = "allows" if allowed else "denies"
        kind = PATTERN_TYPES.get(deciding.pattern_type, "").lower()
        name_of = "every name" if deciding.resource_name == EVERY else deciding.resource_name
        return Explanation(allowed, f"a rule {word} it, for {name_of} ({kind})", found)
    if has_rules:
        return Explanation(False, "no rule for the resource allows it", found)
    if authorizer.allows_without_rules:
        return Explanation(True, "there is no rule for the resource, and allow.everyone.if.no.acl.found is true", found)
    return Explanation(False, "there is no rule for the resource", found)


def _verdict(rule: Rule, deciding: Rule | None, principal: str, host: str, operation: int) -> str:
    if rule is deciding:
        return DECIDES
    if rule.principal not in (principal, EVERYBODY):
        return OTHER_PRINCIPAL
    if rule.host not in (EVERY, host):
        return OTHER_HOST
    if not rule.speaks_of(host, operation):
        return OTHER_OPERATION
    return AGREES if deciding is not None and rule.allows == deciding.allows else OUTWEIGHED

"""Access rules, and what they decide: who may do what to which resource, as Kafka's StandardAuthorizer has it.

    literal    exactly this name; the name * is every name
    prefixed   every name that begins so

A rule speaks of a principal (User:* is everybody), the address that a client comes from (* is any) and an operation. Of
the rules for a resource one that denies outweighs all that allow, and what no rule allows is denied. Some operations
imply others, where they are allowed and not where they are denied: who may read, write, delete or alter may describe.

What must hold: a decision looks at the rules of one principal and of everybody, for one resource: by the name, by each
length that a prefix has, and by *; never at all rules there are, but for the question about any resource, once.
Not here: who a client is, which rules may be made (controller/acls.py), what an API asks for (broker/authorize/).
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any, Final, NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# Codes of Kafka: kinds of resources, of patterns, operations, permissions. 0 is what nobody knows.
ANY: Final = 1
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = 2, 3, 4, 5, 6, 7
MATCH, LITERAL, PREFIXED = 2, 3, 4
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 2, 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
CREATE_TOKENS, DESCRIBE_TOKENS, TWO_PHASE_COMMIT = 13, 14, 15
DENY, ALLOW = 2, 3

RESOURCE_TYPES: Final = {
    TOPIC: "TOPIC",
    GROUP: "GROUP",
    CLUSTER: "CLUSTER",
    TRANSACTIONAL_ID: "TRANSACTIONAL_ID",
    DELEGATION_TOKEN: "DELEGATION_TOKEN",
    USER: "USER",
}
PATTERN_TYPES: Final = {LITERAL: "LITERAL", PREFIXED: "PREFIXED"}
OPERATIONS: Final = {
    ALL: "ALL",
    READ: "READ",
    WRITE: "WRITE",
    CREATE: "CREATE",
    DELETE: "DELETE",
    ALTER: "ALTER",
    DESCRIBE: "DESCRIBE",
    CLUSTER_ACTION: "CLUSTER_ACTION",
    DESCRIBE_CONFIGS: "DESCRIBE_CONFIGS",
    ALTER_CONFIGS: "ALTER_CONFIGS",
    IDEMPOTENT_WRITE: "IDEMPOTENT_WRITE",
    CREATE_TOKENS: "CREATE_TOKENS",
    DESCRIBE_TOKENS: "DESCRIBE_TOKENS",
    TWO_PHASE_COMMIT: "TWO_PHASE_COMMIT",
}
PERMISSIONS: Final = {DENY: "DENY", ALLOW: "ALLOW"}

# What can be done to a resource (AclEntry.supportedOperations); a rule may name others, and they mean nothing.
SUPPORTED: Final = {
    TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    CLUSTER: (CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE),
    TRANSACTIONAL_ID: (WRITE, DESCRIBE, TWO_PHASE_COMMIT),
    DELEGATION_TOKEN: (DESCRIBE,),
    USER: (CREATE_TOKENS, DESCRIBE_TOKENS),
}
CLUSTER_NAME: Final = "kafka-cluster"
EVERY: Final = "*"  # name, or host
EVERYBODY: Final = "User:*"
# What else allows an operation; a denial is of that operation alone.
IMPLIED_BY: Final = {
    DESCRIBE: frozenset((ALL, DESCRIBE, READ, WRITE, DELETE, ALTER)),
    DESCRIBE_CONFIGS: frozenset((ALL, DESCRIBE_CONFIGS, ALTER_CONFIGS)),
}


class Rule(NamedTuple):
    """One access rule; two with the same contents are the same."""

    resource_type: int
    pattern_type: int
    resource_name: str
    principal: str  # type and name
    host: str
    operation: int
    permission: int

    @property
    def allows(self) -> bool:
        return self.permission == ALLOW

    def speaks_of(self, host: str, operation: int) -> bool:
        """Return whether this says anything about an operation by who comes from there."""
        if self.host not in (EVERY, host):
            return False
        if self.operation in (operation, ALL):
            return True
        return self.allows and self.operation in IMPLIED_BY.get(operation, ())

    def __str__(self) -> str:
        pattern = "prefix " if self.pattern_type == PREFIXED else ""
        place = "" if self.host == EVERY else f" from {self.host}"
        return (
            f"{PERMISSIONS.get(self.permission, self.permission)} {self.principal}{place} to "
            f"{OPERATIONS.get(self.operation, self.operation)} {pattern}"
            f"{RESOURCE_TYPES.get(self.resource_type, self.resource_type)}:{self.resource_name}"
        )


def rule_of(record: Any) -> Rule:
    """Return what a record of the metadata log says (AccessControlEntryRecord)."""
    return Rule(
        record.resource_type,
        record.pattern_type,
        record.resource_name,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


class RuleFilter(NamedTuple):
    """Which rules are asked for; None and ANY are all."""

    resource_type: int
    pattern_type: int  # MATCH: every rule that applies to the name
    resource_name: str | None
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, rule: Rule) -> bool:
        return (
            self.resource_type in (ANY, rule.resource_type)
            and self.operation in (ANY, rule.operation)
            and self.permission in (ANY, rule.permission)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self._matches_name(rule)
        )

    def _matches_name(self, rule: Rule) -> bool:
        if self.pattern_type not in (ANY, MATCH, rule.pattern_type):
            return False
        name = self.resource_name
        if name is None:
            return True
        if self.pattern_type != MATCH:
            return name == rule.resource_name
        if rule.pattern_type == PREFIXED:
            return name.startswith(rule.resource_name)
        return rule.resource_name in (name, EVERY)


class Section:
    """The rules for one pattern, by their principal."""

    __slots__ = ("count", "rules")

    def __init__(self) -> None:
        self.rules: dict[str, list[Rule]] = {}
        self.count = 0


class Acls:
    """All access rules there are."""

    def __init__(self) -> None:
        self._rules: dict[bytes, Rule] = {}  # by the id of the record that made it
        self._literal: dict[tuple[int, str], Section] = {}  # by resource type and name
        self._prefixed: dict[tuple[int, str], Section] = {}
        self._lengths: dict[int, Counter[int]] = {}  # of prefixes, by resource type: how many patterns have each

    def __len__(self) -> int:
        return len(self._rules)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules.values())

    def add(self, rule_id: bytes, rule: Rule) -> None:
        """Take in a rule; one with the same id goes."""
        self.remove(rule_id)
        self._rules[rule_id] = rule
        sections, key = self._place(rule)
        section = sections.get(key)
        if section is None:
            section = sections[key] = Section()
            if sections is self._prefixed:
                self._lengths.setdefault(rule.resource_type, Counter())[len(rule.resource_name)] += 1
        section.rules.setdefault(rule.principal, []).append(rule)
        section.count += 1

    def remove(self, rule_id: bytes) -> None:
        """Forget a rule, if there is one with this id."""
        rule = self._rules.pop(rule_id, None)
        if rule is None:
            return
        sections, key = self._place(rule)
        section = sections[key]
        rules = section.rules[rule.principal]
        rules.remove(rule)
        if not rules:
            del section.rules[rule.principal]
        section.count -= 1
        if not section.count:
            del sections[key]
            if sections is self._prefixed:
                lengths = self._lengths[rule.resource_type]
                lengths[len(rule.resource_name)] -= 1
                if not lengths[len(rule.resource_name)]:
                    del lengths[len(rule.resource_name)]

    def _place(self, rule: Rule) -> tuple[dict[tuple[int, str], Section], tuple[int, str]]:
        sections = self._prefixed if rule.pattern_type == PREFIXED else self._literal
        return sections, (rule.resource_type, rule.resource_name)

    def sections(self, resource_type: int, name: str) -> Iterator[Section]:
        """Yield the rules for a resource: those for its name, for beginnings of it, and for all names."""
        found = self._literal.get((resource_type, name))
        if found is not None:
            yield found
        if name != EVERY:
            found = self._literal.get((resource_type, EVERY))
            if found is not None:
                yield found
        for length in self._lengths.get(resource_type, ()):
            if length <= len(name):
                found = self._prefixed.get((resource_type, name[:length]))
                if found is not None:
                    yield found

    def decide(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> tuple[bool, Rule | None, bool]:
        """Return whether it is allowed, the rule that says so, and whether there is any rule for the resource."""
        allowed_by: Rule | None = None
        has_rules = False
        whose = (principal,) if principal == EVERYBODY else (principal, EVERYBODY)
        for section in self.sections(resource_type, name):
            has_rules = True
            for who in whose:
                for rule in section.rules.get(who, ()):
                    if rule.speaks_of(host, operation):
                        if not rule.allows:
                            return False, rule, True
                        allowed_by = rule
        return allowed_by is not None, allowed_by, has_rules

    def may_for_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Return whether it is allowed to a resource of this type that could be (KIP-679): looks at all rules."""
        denied: dict[int, set[str]] = {LITERAL: set(), PREFIXED: set()}
        allowed: dict[int, set[str]] = {LITERAL: set(), PREFIXED: set()}
        for rule in self:
            if (
                rule.resource_type == resource_type
                and rule.host in (EVERY, host)
                and rule.principal in (EVERYBODY, principal)
                and rule.operation in (operation, ALL)
            ):
                names = (allowed if rule.allows else denied).get(rule.pattern_type)
                if names is not None:
                    names.add(rule.resource_name)
        if EVERY in denied[LITERAL]:
            return False
        if EVERY in allowed[LITERAL]:
            return True
        return any(not _is_begun(name, denied[PREFIXED]) for name in allowed[LITERAL] - denied[LITERAL]) or any(
            not _is_begun(name, denied[PREFIXED]) for name in allowed[PREFIXED]
        )


def _is_begun(name: str, prefixes: set[str]) -> bool:
    """Return whether a name begins with one of some prefixes."""
    return bool(prefixes) and any(name[:length] in prefixes for length in range(1, len(name) + 1))


DECISIONS_MAX: Final = 10_000  # that are remembered until the rules change,
NAMES_MAX: Final = 512  # of principals and resources with no more letters than this: clients make names up at will


class Authorizer:
    """What the rules, and two settings, decide."""

    def __init__(self, super_users: Iterable[str] = (), *, allows_without_rules: bool = False):
        """super_users: principals that may do anything. allows_without_rules: to a resource that no rule speaks of."""
        self.super_users = frozenset(super_users)
        self.allows_without_rules = allows_without_rules
        self.audit: Callable[..., object] | None = None  # is told of decisions by who asks for them
        self.acls = Acls()
        self._decisions: dict[tuple[str, str, int, int, str], bool] = {}

    def load(self, records: Mapping[bytes, Any]) -> None:
        """Know these rules and no others."""
        self.acls = Acls()
        for rule_id, record in records.items():
            self.acls.add(rule_id, rule_of(record))
        self._decisions.clear()

    def follow(self, record: Any, records: Mapping[bytes, Any]) -> None:
        """Take in a record that adds or removes a rule, or ends a change of several; records: what there is now."""
        rule_id = getattr(record, "id", None)
        if rule_id is None:
            self.load(records)
            return
        there = records.get(bytes(rule_id))  # not yet, if the change that it is part of goes on
        if there is None:
            self.acls.remove(bytes(rule_id))
        else:
            self.acls.add(bytes(rule_id), rule_of(there))
        self._decisions.clear()

    def may(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Return whether somebody may do something to a resource."""
        asked = (principal, host, operation, resource_type, name)
        known = self._decisions.get(asked)
        if known is None:
            known = self._remember(asked, self._decide(*asked))
        return known

    def _remember(self, asked: tuple[str, str, int, int, str], decision: bool) -> bool:
        if len(asked[0]) + len(asked[4]) <= NAMES_MAX:
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            self._decisions[asked] = decision
        return decision

    def _decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        if principal in self.super_users:
            return True
        allowed, _, has_rules = self.acls.decide(principal, host, operation, resource_type, name)
        return allowed or (not has_rules and self.allows_without_rules)

    def may_for_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Return whether it is allowed to some resource of a type, there or not."""
        asked = (principal, host, operation, -resource_type, "")
        known = self._decisions.get(asked)
        if known is None:
            # As Kafka: a name that hardly anybody has stands for those without rules.
            known = self._remember(
                asked,
                self.may(principal, host, operation, resource_type, "hardcode")
                or self.acls.may_for_any(principal, host, operation, resource_type),
            )
        return known


@lru_cache(1000)
def java_address(address: str) -> str:
    """Return an address as Java writes it, for that is what rules are compared with.

    IPv6 has all its eight parts, 0:0:0:0:0:0:0:1, and IPv4 that came as IPv6 is IPv4.
    """
    if ":" not in address:
        return address
    from ipaddress import IPv6Address

    plain, percent, scope = address.partition("%")
    number = IPv6Address(plain)
    if number.ipv4_mapped is not None:
        return str(number.ipv4_mapped)
    return ":".join(f"{int(part, 16):x}" for part in number.exploded.split(":")) + percent + scope

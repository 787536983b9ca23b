"""Words for access rules on a command line: what security/rule_words.py reads, options of kafka-acls.sh, and tables."""

from __future__ import annotations

from minibroker.cli.connect import Refused
from minibroker.security import rule_words
from minibroker.security.acls import (
    ANY,
    CLUSTER,
    CLUSTER_NAME,
    EVERY,
    LITERAL,
    MATCH,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    PREFIXED,
    RESOURCE_TYPES,
    USER,
    java_address,
)
from minibroker.security.rule_words import KINDS, Resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence
    from typing import Any

    from minibroker.client.security_admin import AccessRule

OPTIONS = {"topic": "NAME", "group": "ID", "transactional-id": "ID", "delegation-token": "ID"}
OPTIONS["user-principal"] = "PRINCIPAL"
PATTERNS = {"literal": LITERAL, "prefixed": PREFIXED, "match": MATCH, "any": ANY}
COLUMNS = ("RESOURCE", "PRINCIPAL", "HOST", "PERMISSION", "OPERATIONS")


def add_resources(parser: argparse.ArgumentParser) -> None:
    for option, value in OPTIONS.items():
        parser.add_argument(
            f"--{option}", dest=option.replace("-", "_"), action="append", default=[], metavar=value, help="* is every"
        )
    parser.add_argument("--cluster", action="store_true", help="the cluster itself")


def resources_of(options: argparse.Namespace, pattern: int) -> list[Resource]:
    """Return the resources that options name."""
    found = [
        Resource(KINDS[option], principal_of(name) if KINDS[option] == USER and name != EVERY else name, pattern)
        for option in OPTIONS
        for name in getattr(options, option.replace("-", "_"))
    ]
    return found + ([Resource(CLUSTER, CLUSTER_NAME, LITERAL)] if options.cluster else [])


def resource_of(text: str) -> Resource:
    try:
        return rule_words.resource_of(text)
    except ValueError as error:
        raise Refused(str(error)) from None


def principal_of(text: str) -> str:
    try:
        return rule_words.principal_of(text)
    except ValueError as error:
        raise Refused(str(error)) from None


def operations_of(texts: Iterable[str]) -> list[int]:
    """Return operations, with commas between some."""
    try:
        found = [rule_words.operation_of(each.strip()) for text in texts for each in text.split(",")]
    except ValueError as error:
        raise Refused(str(error)) from None
    return list(dict.fromkeys(found))


def check_host(text: str | None) -> None:
    """Refuse what is the address of nobody: rules compare it with that of a client, and know no networks."""
    from ipaddress import ip_address

    if text not in (None, EVERY):
        try:
            ip_address(text)
        except ValueError:
            raise Refused(f"{text!r} is no address: a rule is for a single one, and never holds otherwise") from None


def check_principal(text: str | None) -> None:
    """Refuse what is nobody: here clients are users, and rules know no beginnings of their names."""
    kind, _, name = (text or "").partition(":")
    if kind != "User" or not name or (name != EVERY and name.endswith(EVERY)):
        words = "clients are User:NAME, and User:* is all of them; --force, if somebody is called so"
        raise Refused(f"{text!r} is nobody, so the rule would never hold: {words}")


def host_of(text: str) -> str:
    """Return an address as rules have it."""
    try:
        return java_address(text)
    except ValueError:
        raise Refused(f"{text!r} is no address") from None


def rule_lines(rules: Sequence[AccessRule]) -> list[str]:
    """Return a table of rules: those that differ in their operation alone are one row."""
    rows: dict[tuple[Any, ...], list[str]] = {}
    for rule in sorted(rules, key=lambda each: (each[:3], each.permission, str(each.principal), each.host)):
        resource = Resource(rule.resource_type, rule.resource_name, rule.pattern_type)
        key = (resource, rule.principal, rule.host, PERMISSIONS.get(rule.permission, rule.permission))
        rows.setdefault(key, []).append(OPERATIONS.get(rule.operation, str(rule.operation)))
    return aligned(COLUMNS, [(*map(str, key), ",".join(sorted(names))) for key, names in rows.items()])


def rule_document(rule: AccessRule) -> dict[str, Any]:
    return {
        "resource_type": RESOURCE_TYPES.get(rule.resource_type, rule.resource_type),
        "pattern_type": PATTERN_TYPES.get(rule.pattern_type, rule.pattern_type),
        "resource_name": rule.resource_name,
        "principal": rule.principal,
        "host": rule.host,
        "operation": OPERATIONS.get(rule.operation, rule.operation),
        "permission": PERMISSIONS.get(rule.permission, rule.permission),
    }


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of columns as wide as they have to be, names first; nothing if there are no rows."""
    if not rows:
        return []
    lines = [columns, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]

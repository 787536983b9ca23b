"""`minibroker acls`: access rules, with the options of kafka-acls.sh, and in short as words.

    minibroker acls add alice read,write orders        minibroker acls --add --allow-principal User:alice
                                                                       --operation Read --operation Write --topic orders
What must hold: nothing is removed that the words do not name; all rules of a resource only if --force is said.
"""

from __future__ import annotations

from minibroker.cli.acl_words import (
    PATTERNS,
    add_resources,
    check_host,
    check_principal,
    host_of,
    operations_of,
    principal_of,
    resource_of,
    resources_of,
    rule_document,
    rule_lines,
)
from minibroker.cli.connect import Refused, print_json, run_with_cluster
from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.status import DONE
from minibroker.client.security_admin import AccessRule
from minibroker.security.acls import (
    ALL,
    ALLOW,
    ANY,
    CLUSTER,
    CLUSTER_NAME,
    CREATE,
    DENY,
    DESCRIBE,
    EVERY,
    GROUP,
    IDEMPOTENT_WRITE,
    LITERAL,
    OPERATIONS,
    PREFIXED,
    READ,
    RESOURCE_TYPES,
    SUPPORTED,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from minibroker.security.rule_words import Resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from minibroker.client.cluster import Cluster
    from minibroker.client.security_admin import SecurityAdmin

DESCRIPTION = (
    "Access rules: list, add and remove them. Without a verb, list. minibroker who-may explains what they decide."
)
EPILOG = (
    "acls add alice read,write orders is short for --add --allow-principal User:alice --operation Read --operation "
    "Write --topic orders. A RESOURCE is a topic, or group:ID, transactional-id:ID, token:ID, user:PRINCIPAL, cluster; "
    "with * at its end all that begin so."
)
VERBS = ("list", "add", "remove")
_NOT_TO_LIST = (
    *("allow_principal", "allow_host", "deny_principal", "deny_host", "deny", "host", "operation"),
    *("producer", "consumer", "idempotent", "force"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="list [RESOURCE], or add, remove: PRINCIPAL OPERATION,... RESOURCE"
    )
    verbs = parser.add_mutually_exclusive_group()
    verbs.add_argument("--list", dest="verb", action="store_const", const="list", help="rules; nobody need say so")
    verbs.add_argument("--add", dest="verb", action="store_const", const="add", help="make rules")
    verbs.add_argument("--remove", dest="verb", action="store_const", const="remove", help="remove rules")
    for word in ("allow", "deny"):
        parser.add_argument(
            f"--{word}-principal", action="append", default=[], metavar="TYPE:NAME", help="User:* is all"
        )
        parser.add_argument(f"--{word}-host", action="append", default=[], metavar="ADDRESS", help="from where (*)")
    parser.add_argument("--deny", action="store_true", help="with words: a rule that denies")
    parser.add_argument("--host", metavar="ADDRESS", help="with words: from where (*)")
    parser.add_argument("--principal", action="append", default=[], metavar="TYPE:NAME", help="list: only their rules")
    parser.add_argument("--operation", action="append", default=[], metavar="NAME", help="Read, Write, ... (All)")
    add_resources(parser)
    parser.add_argument(
        "--resource-pattern-type", type=str.lower, choices=tuple(PATTERNS), metavar="TYPE",
        help="literal, or prefixed: all names that begin so; to list or remove also match: what applies to the name, "
        "and any (literal; to list match)",
    )  # fmt: skip
    parser.add_argument("--producer", action="store_true", help="what a producer needs: --topic, --transactional-id")
    parser.add_argument("--consumer", action="store_true", help="what a consumer needs: --topic and --group")
    parser.add_argument("--idempotent", action="store_true", help="--producer: of one that is idempotent, before 2.8")
    parser.add_argument(
        "--force", action="store_true", help="remove all rules of a resource, too; add a rule for an odd name"
    )
    parser.add_argument("-J", "--json", action="store_true", help="one JSON document")


def run(options: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        from minibroker.client.security_admin import SecurityAdmin

        verb, words = _verb_of(options)
        works = {"list": _list, "add": _add, "remove": _remove}
        await works[verb](SecurityAdmin(cluster), words, options)
        return DONE

    return run_with_cluster("acls", options, work)


def _verb_of(options: argparse.Namespace) -> tuple[str, list[str]]:
    words: list[str] = list(options.words)
    verb: str | None = options.verb
    if words and words[0] in VERBS and verb is None:
        verb, words = words[0], words[1:]
    if words and verb is None:
        raise Refused(f"{words[0]}: list, add or remove? A resource is listed by acls list {words[0]}")
    return verb or "list", words


# List


async def _list(admin: SecurityAdmin, words: list[str], options: argparse.Namespace) -> None:
    for name in _NOT_TO_LIST:
        if getattr(options, name):
            option = f"--{name.replace('_', '-')}"
            raise Refused(f"{option} is to add and remove; listed are rules of a RESOURCE or a --principal")
    pattern = PATTERNS[options.resource_pattern_type or "match"]
    resources = resources_of(options, pattern)
    for word in words:
        named = resource_of(word)
        resources.append(named if named.pattern == PREFIXED else named._replace(pattern=pattern))
    found: dict[AccessRule, None] = {}
    for resource in resources or [Resource(ANY, None, ANY)]:
        for principal in map(principal_of, options.principal) if options.principal else [None]:
            wanted = AccessRule(resource.type, resource.pattern, resource.name, principal, None, ANY, ANY)
            found |= dict.fromkeys(await admin.find_rules(wanted))
    _print(list(found), options, nothing="there is no such rule" if resources or options.principal else "no rules")


def _print(rules: list[AccessRule], options: argparse.Namespace, *, nothing: str = "") -> None:
    if options.json:
        print_json([rule_document(rule) for rule in sorted(rules, key=str)])
    elif rules:
        print("\n".join(rule_lines(rules)))
    elif nothing:
        print(nothing)


# Add and remove


def _wanted(words: list[str], options: argparse.Namespace, *, is_filter: bool) -> list[AccessRule]:
    """Return the rules that words and options name."""
    if options.principal:
        raise Refused(
            "--principal is to list; whose rules are meant says --allow-principal, --deny-principal, or a word"
        )
    pattern = PATTERNS[options.resource_pattern_type or "literal"]
    if not is_filter and pattern not in (LITERAL, PREFIXED):
        raise Refused("--resource-pattern-type: a rule is literal or prefixed")
    if words:
        return _wanted_by_words(words, options, is_filter=is_filter)
    if options.deny or options.host:
        raise Refused("--deny and --host are for words; by options it is --deny-principal, --allow-host, --deny-host")
    who = _who(options)
    if not who and not is_filter:
        raise Refused("--add: for whom? --allow-principal User:alice or --deny-principal User:bob")
    pairs = _pairs(options, pattern)
    if not pairs:
        raise Refused("which resource? --topic, --group, --transactional-id, --cluster, --delegation-token, ...")
    if not who:
        if not options.force:
            raise Refused("--remove: of everybody? Say --force for that, or --allow-principal, --deny-principal")
        names_operations = options.operation or options.producer or options.consumer
        return list(
            dict.fromkeys(
                AccessRule(*_of(resource), None, None, operation if names_operations else ANY, ANY)
                for resource, operation in pairs
            )
        )
    return [
        AccessRule(*_of(resource), principal, host, operation, permission)
        for resource, operation in pairs
        for principal, host, permission in who
    ]


def _wanted_by_words(words: list[str], options: argparse.Namespace, *, is_filter: bool) -> list[AccessRule]:
    if len(words) != 3:
        raise Refused(f"{' '.join(words)}: say PRINCIPAL OPERATION RESOURCE, as in alice read,write orders")
    if resources_of(options, LITERAL) or _who(options) or options.operation or options.producer or options.consumer:
        raise Refused("either PRINCIPAL OPERATION RESOURCE as words, or all of it by options")
    resource = resource_of(words[2])
    if options.resource_pattern_type is not None:
        resource = resource._replace(pattern=PATTERNS[options.resource_pattern_type])
    operations = operations_of([words[1]])
    _check_operations(resource.type, operations)
    host = host_of(options.host) if options.host else None if is_filter else EVERY
    permission = DENY if options.deny else ANY if is_filter else ALLOW
    return [AccessRule(*_of(resource), principal_of(words[0]), host, each, permission) for each in operations]


def _of(resource: Resource) -> tuple[int, int, str | None]:
    return resource.type, resource.pattern, resource.name


def _who(options: argparse.Namespace) -> list[tuple[str, str, int]]:
    """Return principals with their hosts, and whether they are allowed or denied."""
    found = []
    for word, permission in (("allow", ALLOW), ("deny", DENY)):
        principals = getattr(options, f"{word}_principal")
        hosts = getattr(options, f"{word}_host")
        if hosts and not principals:
            raise Refused(f"--{word}-host: for whom? --{word}-principal User:alice")
        found += [(principal_of(name), host_of(host), permission) for name in principals for host in hosts or [EVERY]]
    return found


def _pairs(options: argparse.Namespace, pattern: int) -> list[tuple[Resource, int]]:
    """Return resources with the operations that are meant."""
    resources = resources_of(options, pattern)
    if not options.producer and not options.consumer:
        if options.idempotent:
            raise Refused("--idempotent belongs to --producer")
        operations = operations_of(options.operation) or [ALL]
        for resource in resources:
            _check_operations(resource.type, operations)
        return [(resource, operation) for resource in resources for operation in operations]
    if options.operation:
        raise Refused("--producer and --consumer say which operations, so no --operation")
    if options.deny_principal or options.deny_host:
        raise Refused("--producer and --consumer are for principals that are allowed: --allow-principal")
    if not any(resource.type == TOPIC for resource in resources):
        raise Refused(f"--{'producer' if options.producer else 'consumer'} needs --topic")
    if options.consumer and not any(resource.type == GROUP for resource in resources):
        raise Refused("--consumer needs --group")
    needs: dict[int, tuple[int, ...]] = {}
    if options.producer:
        needs |= {TOPIC: (WRITE, DESCRIBE, CREATE), TRANSACTIONAL_ID: (WRITE, DESCRIBE)}
        if options.idempotent:
            resources.append(Resource(CLUSTER, CLUSTER_NAME, LITERAL))
            needs[CLUSTER] = (IDEMPOTENT_WRITE,)
    if options.consumer:
        needs[TOPIC] = tuple(dict.fromkeys((*needs.get(TOPIC, ()), READ, DESCRIBE)))
        needs[GROUP] = (READ,)
    for resource in resources:
        if resource.type not in needs:
            raise Refused(f"{resource}: not for --producer or --consumer")
    return [(resource, operation) for resource in resources for operation in needs[resource.type]]


def _check_operations(kind: int, operations: list[int]) -> None:
    for operation in operations:
        if operation not in (ALL, *SUPPORTED[kind]):
            names = ", ".join(OPERATIONS[each] for each in SUPPORTED[kind])
            raise Refused(f"{OPERATIONS[operation]} means nothing to a {RESOURCE_TYPES[kind]}; it has {names}, ALL")


async def _add(admin: SecurityAdmin, words: list[str], options: argparse.Namespace) -> None:
    rules = _wanted(words, options, is_filter=False)
    for rule in rules:
        check_host(rule.host)
        if not options.force:
            check_principal(rule.principal)
    await admin.add_rules(rules)
    if not options.json:
        print(f"{len(rules)} rule{'' if len(rules) == 1 else 's'} there now:")
    _print(rules, options)


async def _remove(admin: SecurityAdmin, words: list[str], options: argparse.Namespace) -> None:
    removed = await admin.remove_rules(_wanted(words, options, is_filter=True))
    if not options.json and removed:
        print(f"{len(removed)} rule{'' if len(removed) == 1 else 's'} removed:")
    _print(removed, options, nothing="no rule removed: there is no such one, see minibroker acls")

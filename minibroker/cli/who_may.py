"""`minibroker who-may`: who may do what to a resource, and which rule says so.

    minibroker who-may alice write orders      one decision, rule by rule; the status is 1 if it is no
    minibroker who-may alice orders            every operation
    minibroker who-may - write orders          who may at all

The rules come from a running broker. Whether super.users and allow.everyone.if.no.acl.found are set is told by it too,
and to what is not: to Kafka they are secrets. --super-user and --open say it.
What must hold: what is not known is said, and nobody is believed to be allowed by it.
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.cli.acl_words import (
    add_resources,
    aligned,
    host_of,
    operations_of,
    principal_of,
    resource_of,
    resources_of,
    rule_document,
)
from minibroker.cli.connect import Refused, complain, print_json, run_with_cluster
from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.status import DONE, FAILED
from minibroker.client.security_admin import AccessRule
from minibroker.security.acls import (
    ANY,
    EVERY,
    EVERYBODY,
    LITERAL,
    MATCH,
    OPERATIONS,
    PREFIXED,
    SUPPORTED,
    Authorizer,
    Rule,
)
from minibroker.security.rule_words import Resource, is_operation
from minibroker.security.why import explain

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from minibroker.client.cluster import Cluster
    from minibroker.security.why import Explanation

DESCRIPTION = "Say who may do what, and which access rule decides: who-may alice write orders."
EPILOG = (
    "Without an operation, every one; with - in place of the principal, who may at all. A RESOURCE is a topic, or "
    "group:ID, transactional-id:ID, token:ID, user:PRINCIPAL, cluster. Of one decision that is no the status is 1."
)
NOBODY = "-"
SUPER_USERS, OPEN, AUTHORIZER = "super.users", "allow.everyone.if.no.acl.found", "authorizer.class.name"
ELSE = "everybody else"
STRANGER = "\0:\0"  # somebody whom no rule names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("words", nargs="+", metavar="WORD", help="PRINCIPAL [OPERATION] RESOURCE; - for whoever it is")
    parser.add_argument("--host", metavar="ADDRESS", help="where the client comes from (an address that no rule names)")
    add_resources(parser)
    parser.add_argument(
        "--super-user", dest="super_users", action="append", default=[], metavar="NAME",
        help="one of super.users, which brokers tell nobody",
    )  # fmt: skip
    parser.add_argument("--open", action="store_true", help=f"{OPEN} is true, which brokers do not tell either")
    parser.add_argument("-J", "--json", action="store_true", help="one JSON document")


class Judge(NamedTuple):
    """Decides as the broker does, as far as its settings are known."""

    authorizer: Authorizer
    unknown: list[str]  # settings that may allow more than is known
    resource: Resource
    host: str

    def explain(self, who: str, operation: int) -> Explanation:
        return explain(self.authorizer, who, self.host, operation, self.resource.type, self.resource.name or "")

    def doubts(self, made: Explanation) -> list[str]:
        """Return what could make a yes of a no."""
        return [] if made.allowed else [each for each in self.unknown if each == SUPER_USERS or not made.rules]


def run(options: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        principal, operations, resource = _asked(options)
        host = host_of(options.host) if options.host else EVERY
        if not await _has_authorizer(cluster, options):
            return DONE
        judge = await _judge(cluster, resource, host, options)
        if principal == NOBODY:
            return _tell_everybody(judge, operations, options)
        if len(operations) == 1:
            return _tell_one(judge, principal_of(principal), operations[0], options)
        return _tell_all(judge, principal_of(principal), operations, options)

    return run_with_cluster("who-may", options, work)


def _asked(options: argparse.Namespace) -> tuple[str, list[int], Resource]:
    principal, *rest = options.words
    resources = resources_of(options, LITERAL)
    if not resources:
        if not rest or (len(rest) == 1 and is_operation(rest[0])):
            raise Refused(f"{' '.join(options.words)}: to which resource? who-may alice write orders")
        resources = [resource_of(rest.pop())]
    if len(resources) > 1 or len(rest) > 1:
        raise Refused("say PRINCIPAL [OPERATION] RESOURCE: one of each")
    (resource,) = resources
    if resource.pattern == PREFIXED or resource.name == EVERY:
        raise Refused("a decision is about one resource: * names none")
    operations = operations_of(rest) if rest else list(SUPPORTED[resource.type])
    for operation in operations:
        if operation not in SUPPORTED[resource.type]:
            names = ", ".join(OPERATIONS[each] for each in SUPPORTED[resource.type])
            raise Refused(f"nobody asks for {OPERATIONS[operation]} of {resource}, but for {names}")
    return principal, operations, resource


async def _has_authorizer(cluster: Cluster, options: argparse.Namespace) -> bool:
    """Say so if a broker asks nobody, and lets everybody do everything."""
    from minibroker.client.security_admin import SecurityAdmin
    from minibroker.errors import Error, KafkaError

    try:
        await SecurityAdmin(cluster).find_rules(AccessRule(ANY, ANY, None, STRANGER, None, ANY, ANY))
    except KafkaError as error:
        if error.code != Error.SECURITY_DISABLED:
            raise
        if options.json:
            print_json({"allowed": True, "reason": f"{AUTHORIZER} is not set"})
        else:
            print(f"yes: everybody may do everything, because {AUTHORIZER} is not set")
        return False
    return True


async def _judge(cluster: Cluster, resource: Resource, host: str, options: argparse.Namespace) -> Judge:
    from minibroker.client.security_admin import SecurityAdmin

    wanted = AccessRule(resource.type, MATCH, resource.name, None, None, ANY, ANY)
    found = await SecurityAdmin(cluster).find_rules(wanted)
    super_users = [principal_of(name) for text in options.super_users for name in text.split(";") if name]
    may_be_set = await _set_in(cluster)
    unknown = [SUPER_USERS] if SUPER_USERS in may_be_set and not super_users else []
    unknown += [OPEN] if OPEN in may_be_set and not options.open else []
    authorizer = Authorizer(super_users, allows_without_rules=options.open)
    for number, rule in enumerate(found):
        authorizer.acls.add(b"%d" % number, Rule(*rule))  # type: ignore[arg-type]  # only filters have None
    return Judge(authorizer, unknown, resource, host)


async def _set_in(cluster: Cluster) -> set[str]:
    """Return which of the two settings are set, or may be: one that is not set has no entry."""
    from minibroker.client.admin import Admin
    from minibroker.errors import KafkaError

    await cluster.metadata([])  # to know a broker by its number
    broker = ("broker", str(min(cluster.nodes)))
    try:
        return set((await Admin(cluster).describe_configs([broker], [SUPER_USERS, OPEN]))[broker])
    except KafkaError:
        return {SUPER_USERS, OPEN}


# What is told

UNLESS = {SUPER_USERS: f"it is one of {SUPER_USERS}", OPEN: f"{OPEN} is true"}
WHY_UNKNOWN = {
    SUPER_USERS: f"{SUPER_USERS} may do anything, and brokers tell nobody who they are: --super-user NAME says so",
    OPEN: f"{OPEN} is set, and brokers tell nobody to what: --open says that it is true",
}


def _tell_one(judge: Judge, who: str, operation: int, options: argparse.Namespace) -> int:
    made = judge.explain(who, operation)
    doubts = judge.doubts(made)
    if options.json:
        rules = [{**rule_document(AccessRule(*rule)), "verdict": verdict} for rule, verdict in made.rules]
        print_json({**_document(judge, who, operation, made), "rules": rules})
        return DONE if made.allowed else FAILED
    answer = "yes" if made.allowed else "no"
    if doubts:
        answer = f"no, unless {' or '.join(UNLESS[each] for each in doubts)}"
    may = "may" if made.allowed else "may not"
    print(f"{answer}: {who}{_from(judge)} {may} {OPERATIONS[operation]} {judge.resource}, because {made.reason}")
    for line in aligned(("RULE", "VERDICT"), [(str(rule), verdict) for rule, verdict in made.rules])[1:]:
        print(f"  {line}")
    _tell_unknown(doubts)
    return DONE if made.allowed else FAILED


def _tell_unknown(settings: Iterable[str]) -> None:
    for name in settings:
        complain("who-may", WHY_UNKNOWN[name])


def _from(judge: Judge) -> str:
    return "" if judge.host == EVERY else f" from {judge.host}"


def _document(judge: Judge, who: str, operation: int, made: Explanation) -> dict[str, object]:
    return {
        "principal": who,
        "host": None if judge.host == EVERY else judge.host,
        "operation": OPERATIONS[operation],
        "resource": str(judge.resource),
        "allowed": made.allowed,
        "reason": made.reason,
        "unknown": judge.doubts(made),
    }


def _tell_all(judge: Judge, who: str, operations: list[int], options: argparse.Namespace) -> int:
    made = {each: judge.explain(who, each) for each in operations}
    if options.json:
        print_json([_document(judge, who, each, one) for each, one in made.items()])
        return DONE
    print(f"{who}{_from(judge)} to {judge.resource}:")
    rows = [(OPERATIONS[each], "yes" if one.allowed else "no", one.reason) for each, one in made.items()]
    print("\n".join(f"  {line}" for line in aligned(("OPERATION", "MAY", "REASON"), rows)))
    _tell_unknown(dict.fromkeys(doubt for one in made.values() for doubt in judge.doubts(one)))
    return DONE


def _tell_everybody(judge: Judge, operations: list[int], options: argparse.Namespace) -> int:
    """Say of everybody whom a rule or a setting names who may what, and whether anybody else may."""
    supers = judge.authorizer.super_users
    named = {rule.principal for rule in judge.authorizer.acls} - {EVERYBODY}
    rows, doubts = [], dict.fromkeys(judge.unknown[:1])
    for who in (*sorted(supers), *sorted(named - supers), STRANGER):
        made = {each: judge.explain(who, each) for each in operations}
        may = [OPERATIONS[each] for each, one in made.items() if one.allowed]
        doubts |= dict.fromkeys(doubt for one in made.values() for doubt in judge.doubts(one))
        rows.append((ELSE if who == STRANGER else who, may, next(iter(made.values())).reason))
    if options.json:
        listed: list[object] = [{"principal": name, "allowed": may} for name, may, _ in rows]
        print_json({"resource": str(judge.resource), "who": listed, "unknown": list(doubts)})
        return DONE
    if len(operations) == 1:
        print(f"who may {OPERATIONS[operations[0]]} {judge.resource}{_from(judge)}:")
        table = aligned(
            ("PRINCIPAL", "MAY", "REASON"), [(name, "yes" if may else "no", why) for name, may, why in rows]
        )
    else:
        print(f"who may do what to {judge.resource}{_from(judge)}:")
        table = aligned(("PRINCIPAL", "MAY"), [(name, ",".join(may) or "nothing") for name, may, _ in rows])
    print("\n".join(f"  {line}" for line in table))
    _tell_unknown(doubts)
    return DONE

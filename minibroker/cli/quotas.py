"""`minibroker quotas`: how much clients may take, in short and with the options of kafka-configs.sh.

minibroker quotas set --user alice producer_byte_rate=1MB/s
minibroker quotas --alter --entity-type users --entity-name alice --add-config producer_byte_rate=1000000
minibroker quotas why --user alice --client-id app          whose limit holds, and which were passed over
"""

from __future__ import annotations

from minibroker.cli.connect import Refused, print_json, run_with_cluster
from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.quota_words import (
    LIMITS,
    OF_ADDRESSES,
    OF_CLIENTS,
    known,
    number,
    readable,
    shown,
    sorted_entities,
    value_of,
    whom,
)
from minibroker.cli.status import DONE, FAILED
from minibroker.quotas.entities import ANY, CLIENT_ID, CONNECTION_RATE, IP, USER, ClientLimits, addresses_of, precedence

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from minibroker.client.client_quotas import Entity
    from minibroker.client.cluster import Cluster
    from minibroker.quotas.entities import Pair

    Quotas = dict[Entity, dict[str, float]]
    Changes = dict[str, float | None]

DESCRIPTION = "How much clients may take: list, set and remove limits, and say which holds for a client, and why."
EPILOG = (
    f"Limits of users and client ids: {', '.join(OF_CLIENTS)}; of addresses: {', '.join(OF_ADDRESSES)}. "
    "Units are 1MB/s, 1MiB/s, 50%, 10/s; without one it is Kafka's: bytes, percent, how many in a second."
)
WORDS_ANYWHERE = True
LIST, SET, REMOVE, WHY = "list", "set", "remove", "why"
VERBS = {
    LIST: "limits of everybody, or of those that have what is named",
    SET: "KEY=VALUE sets limits of those that are named",
    REMOVE: "take limits back: those of KEY, or all",
    WHY: "whose limit holds for a client of --user and --client-id, or an address of --ip",
}
ENTITY_TYPES = {"users": USER, "clients": CLIENT_ID, "ips": IP}
UNNAMED = "for which no limit of client ids holds"
ANONYMOUS = "ANONYMOUS"  # who has not logged in


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    words = ", ".join(f"{verb} ({text})" for verb, text in VERBS.items()).replace("%", "%%")
    parser.add_argument("words", nargs="*", metavar="WORD", help=f"{words}; then KEY=VALUE, or KEY")
    parser.add_argument("--user", dest="user", metavar="NAME", help="whom: a user")
    parser.add_argument("--client-id", "--client", dest="client_id", metavar="NAME", help="a client id")
    parser.add_argument("--ip", dest="ip", metavar="ADDRESS", help="an address that connections come from")
    for kind, text in (("user", "user"), ("client", "client id"), ("ip", "address")):
        parser.add_argument(
            f"--{kind}-defaults",
            f"--{kind}-default",
            dest=f"{kind}_default",
            action="store_true",
            help=f"each {text} that has no limit of its own",
        )
    parser.add_argument(
        "--entity-type", dest="types", action="append", default=[], choices=tuple(ENTITY_TYPES), metavar="KIND",
        help=f"the same in Kafka's words: {', '.join(ENTITY_TYPES)}",
    )  # fmt: skip
    parser.add_argument("--entity-name", dest="names", action="append", default=[], metavar="NAME")
    parser.add_argument(
        "--entity-default", dest="names", action="append_const", const=None, help="those without a limit of their own"
    )
    verbs = parser.add_mutually_exclusive_group()
    verbs.add_argument("--describe", action="store_true", help="the same as list")
    verbs.add_argument("--alter", action="store_true", help="nobody need say so")
    parser.add_argument("--add-config", action="append", default=[], metavar="K=V,K=V", help="the same as set")
    parser.add_argument("--delete-config", action="append", default=[], metavar="K,K", help="the same as remove")
    parser.add_argument("-J", "--json", action="store_true", help="one JSON document")


def run(options: argparse.Namespace) -> int:
    async def work(cluster: Cluster) -> int:
        verb, words = _verb_of(options)
        entity = _entity(options, verb)
        if verb == LIST:
            return await _list(cluster, entity, options)
        if verb == WHY:
            return await _why(cluster, entity, options)
        return await _change(cluster, entity, _changes(verb, words, entity, options), options)

    return run_with_cluster("quotas", options, work)


def _verb_of(options: argparse.Namespace) -> tuple[str, list[str]]:
    """Return what is to be done, and the settings."""
    words: list[str] = list(options.words)
    verb = words.pop(0) if words and words[0] in VERBS else ""
    configs = [*options.add_config, *options.delete_config]
    if not verb and words and "=" not in words[0]:
        raise Refused(f"{words[0]}: what of it? {', '.join(VERBS)}")
    if configs and (verb or words or options.describe):
        raise Refused("--add-config and --delete-config stand alone, or with --alter")
    if options.alter and not (configs or words):
        raise Refused("--alter: what? KEY=VALUE, --add-config or --delete-config")
    verb = verb or (SET if words or configs else LIST)
    if words and verb in (LIST, WHY):
        raise Refused(f"{verb} takes no {words[0]}: {SET} changes limits")
    if verb not in (LIST, WHY) and options.describe:
        raise Refused(f"--describe shows, but {verb} changes: which of them?")
    return verb, words


def _entity(options: argparse.Namespace, verb: str) -> Entity:
    """Return whom it is about, by our options or by pairs of Kafka's."""
    parts: dict[str, str | None] = {}

    def add(kind: str, name: str | None) -> None:
        if kind in parts:
            raise Refused(f"{kind} is named twice")
        if name == "":
            raise Refused(f"{kind}: an empty name is none")
        parts[kind] = name

    for kind, name, is_default in (
        (USER, options.user, options.user_default),
        (CLIENT_ID, options.client_id, options.client_default),
        (IP, options.ip, options.ip_default),
    ):
        if name is not None:
            add(kind, name)
        if is_default:
            add(kind, None)
    for kind, name in _pairs(options, verb):
        add(ENTITY_TYPES[kind], name)
    if verb in (SET, REMOVE) and not parts:
        raise Refused(f"{verb}: whom? --user, --client-id, --ip, or --user-default, --client-default, --ip-default")
    if IP in parts and len(parts) > 1:
        raise Refused("limits of an address are for no user and no client id")
    if verb == WHY and None in parts.values():
        raise Refused("why: of one client, not of a default")
    return tuple(sorted(parts.items()))


def _pairs(options: argparse.Namespace, verb: str) -> list[tuple[str, str | None]]:
    """Return types with their names, in Kafka's words; a list may have types without one: all of them."""
    if len(options.types) != len(options.names) and (verb != LIST or len(options.names) > len(options.types)):
        raise Refused("each --entity-type has its --entity-name, or --entity-default")
    return list(zip(options.types, options.names))


# List


async def _list(cluster: Cluster, entity: Entity, options: argparse.Namespace) -> int:
    from minibroker.client.client_quotas import describe_quotas

    of_types = [ENTITY_TYPES[kind] for kind in options.types[len(options.names) :]]
    _show(await describe_quotas(cluster, entity, of_types), options)
    return DONE


def _show(quotas: Quotas, options: argparse.Namespace) -> None:
    if options.json:
        print_json([{"entity": dict(each), "limits": quotas[each]} for each in sorted_entities(quotas)])
        return
    from minibroker.cli.group_tables import table

    rows = [
        {"WHOM": whom(each), "LIMIT": f"{key}={number(value)}", "MEANS": readable(key, value)}
        for each in sorted_entities(quotas)
        for key, value in sorted(quotas[each].items(), key=lambda limit: _place(limit[0]))
    ]
    print("\n".join(table({"WHOM": 1, "LIMIT": 1, "MEANS": 0}, rows)) if rows else "no limits")


def _place(key: str) -> tuple[int, str]:
    return [*LIMITS, key].index(key), key


# Set, remove


def _changes(verb: str, words: list[str], entity: Entity, options: argparse.Namespace) -> Changes:
    """Return limits by key, None for those that go; nothing: all go."""
    changes: Changes = {}
    to_set = words if verb == SET else []
    to_set = [*to_set, *(item for text in options.add_config for item in text.split(",") if item.strip())]
    for text in to_set:
        key, separator, value = text.strip().partition("=")
        if not separator:
            raise Refused(f"set {text}: to what? KEY=VALUE; {REMOVE} {text} takes it back")
        if key in changes:
            raise Refused(f"{key} is set twice")
        changes[key] = value_of(key, value)
    to_remove = words if verb == REMOVE else []
    to_remove = [*to_remove, *(item for text in options.delete_config for item in text.split(",") if item.strip())]
    for text in to_remove:
        if known(text.strip().removesuffix("=")) in changes:
            raise Refused(f"{text}: set or removed, not both")
        changes[text.strip().removesuffix("=")] = None
    if verb == SET and not changes:
        raise Refused(f"set: what? KEY=VALUE, where KEY is one of {', '.join(_keys_of(entity))}")
    for key in changes:
        if key not in _keys_of(entity):
            raise Refused(f"{whom(entity)}: {key} is no limit of that; there are {', '.join(_keys_of(entity))}")
    return changes


def _keys_of(entity: Entity) -> dict[str, Any]:
    return {**(OF_ADDRESSES if IP in dict(entity) else OF_CLIENTS)}


async def _change(cluster: Cluster, entity: Entity, changes: Changes, options: argparse.Namespace) -> int:
    from minibroker.client.client_quotas import alter_quotas, describe_quotas

    if not any(value is not None for value in changes.values()):
        there = (await describe_quotas(cluster, entity)).get(entity, {})
        missing = [key for key in changes if key not in there]
        if missing or not there:
            what = f"no {', '.join(missing)}" if missing else "no limit"
            raise Refused(f"{whom(entity)} has {what}; minibroker quotas shows what there is", FAILED)
        changes = changes or dict.fromkeys(there)
    await alter_quotas(cluster, entity, changes)
    if options.json:
        print_json({"entity": dict(entity), "changed": changes})
        return DONE
    for key, value in changes.items():
        if value is None:
            print(f"{whom(entity)}: {key} removed")
        else:
            print(f"{whom(entity)}: {key}={number(value)} ({readable(key, value)})")
    return DONE


# Why


async def _why(cluster: Cluster, entity: Entity, options: argparse.Namespace) -> int:
    from minibroker.client.client_quotas import describe_quotas

    parts = dict(entity)
    quotas = await describe_quotas(cluster)
    if IP in parts:
        found = [_explained_address(quotas, parts[IP] or "")]
    else:
        user, client_id = parts.get(USER) or ANONYMOUS, parts.get(CLIENT_ID) or ""
        found = [_explained(quotas, key, user, client_id) for key in OF_CLIENTS]
        if not options.json:
            client = f"client-id {shown(client_id)}" if client_id else f"without a client id, {UNNAMED}"
            print(f"For user {shown(user)}, {client}:")
    if options.json:
        print_json(found)
        return DONE
    for each in found:
        print(f"{each['key']}: {_told(each)}")
        for place, row in enumerate(each["considered"], 1):
            limit = "no limit" if row["value"] is None else readable(each["key"], row["value"])
            mark = "  holds" if row["entity"] == each["entity"] else "  passed over" if row["value"] is not None else ""
            print(f"  {place}. {whom(row['entity'].items()):40} {limit}{mark}".rstrip())
    return DONE


def _told(explained: dict[str, Any]) -> str:
    if explained["value"] is None:
        return "no limit"
    text = readable(explained["key"], explained["value"])
    user, client_id = explained["shared_by"].get(USER), explained["shared_by"].get(CLIENT_ID)
    if IP in explained["shared_by"]:
        return f"{text}, for all connections from {explained['shared_by'][IP]}"
    if user and client_id:
        return f"{text}, for all with client-id {shown(client_id)} of user {shown(user)} together"
    if user:
        return f"{text}, for all clients of user {shown(user)} together"
    return f"{text}, for all with client-id {shown(client_id)} together"


def _explained(quotas: Quotas, key: str, user: str, client_id: str) -> dict[str, Any]:
    """Return what holds of one limit, and all that was looked at: to the last one that there is a limit for."""
    limits = ClientLimits(quotas, key)
    pair = limits.find_pair(user, client_id)
    found = limits.find(user, client_id)
    order = [each for each in dict.fromkeys(precedence(user, client_id)) if each != (ANY, ANY)]
    last = max((place for place, each in enumerate(order) if limits.get(each) is not None), default=-1)
    owner = dict(zip((USER, CLIENT_ID), found[0])) if found else {}
    return {
        "key": key,
        "value": found and found[1],
        "entity": pair and _parts(pair),
        "shared_by": {kind: name for kind, name in owner.items() if name != ANY},
        "considered": [{"entity": _parts(each), "value": limits.get(each)} for each in order[: last + 1]],
    }


def _parts(pair: Pair) -> dict[str, str | None]:
    return {kind: name for kind, name in zip((USER, CLIENT_ID), pair) if name != ANY}


def _explained_address(quotas: Quotas, text: str) -> dict[str, Any]:
    addresses = addresses_of(text)
    if not addresses:
        raise Refused(f"--ip {text}: say an address, such as 10.0.0.7")
    limits = {dict(each).get(IP, ""): quotas[each].get(CONNECTION_RATE) for each in sorted_entities(quotas)}
    considered: list[dict[str, Any]] = [
        {"entity": {IP: name}, "value": limit}
        for name, limit in limits.items()
        if limit is not None and (name is None or addresses[0] in addresses_of(name))
    ]
    first = considered[0] if considered else {"entity": None, "value": None}
    shared = {IP: addresses[0]} if considered else {}
    return {"key": CONNECTION_RATE, **first, "shared_by": shared, "considered": considered}

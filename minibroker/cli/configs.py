"""`minibroker configs`: settings of topics and brokers, with the options of kafka-configs.sh."""

from __future__ import annotations

from minibroker.cli.connect import Refused, complain, print_json, run_with_cluster
from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.status import DONE, USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from minibroker.client.cluster import Cluster
    from minibroker.client.descriptions import ConfigEntry

    Resource = tuple[str, str]

DESCRIPTION = "Show settings of topics and brokers, and change them: KEY=VALUE sets, KEY= goes back to the default."
EPILOG = "Without --all only what was set on the topic or broker itself is shown, unless a key is named."
KINDS = {"topics": "topic", "brokers": "broker", "broker-loggers": "broker_logger", "groups": "group"}
KINDS["client-metrics"] = "client_metrics"
# Numbers of DescribeConfigsResponse.
SOURCES = {
    0: "UNKNOWN",
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
OWN = {"topic": 1, "broker": 2, "broker_logger": 6, "client_metrics": 7, "group": 8}  # set on the thing itself
DEFAULT_OF_BROKERS = 3
LIMITED = ("clients", "ips")  # what they have are quotas: quotas.py, which takes the same words
USERS = "users"  # what they have as settings are their passwords for SCRAM: users.py


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("settings", nargs="*", metavar="KEY[=VALUE]", help="KEY shows one, KEY=VALUE sets it")
    parser.add_argument("-t", "--topic", dest="topics", action="append", default=[], metavar="NAME")
    parser.add_argument("--broker", dest="brokers", action="append", default=[], metavar="ID")
    parser.add_argument("--broker-defaults", action="store_true", help="what holds for every broker of the cluster")
    parser.add_argument(
        "--entity-type", choices=(*KINDS, USERS, *LIMITED), metavar="KIND", help=", ".join((*KINDS, USERS))
    )
    parser.add_argument("--entity-name", action="append", default=[], metavar="NAME")
    parser.add_argument("--entity-default", action="store_true", help="with --entity-type brokers: --broker-defaults")
    verbs = parser.add_mutually_exclusive_group()
    verbs.add_argument("--describe", action="store_true", help="show; nobody need say so")
    verbs.add_argument("--alter", action="store_true", help="change; nobody need say so")
    parser.add_argument("--all", action="store_true", help="every setting, with where its value comes from")
    parser.add_argument("--add-config", action="append", default=[], metavar="K=V,K=[V,V]", help="set")
    parser.add_argument("--delete-config", action="append", default=[], metavar="K,K", help="go back to the default")
    parser.add_argument("-J", "--json", action="store_true", help="one JSON document")


def run(options: argparse.Namespace) -> int:
    if options.entity_type == USERS:
        from minibroker.cli.users import run_as_configs

        return run_as_configs(options)
    if options.entity_type in LIMITED:
        complain(
            "configs",
            f"--entity-type {options.entity_type}: they have limits: `minibroker quotas` takes the same words",
        )
        return USAGE

    async def work(cluster: Cluster) -> int:
        changes = _changes(options)
        resources = await _resources(cluster, options)
        if changes:
            return await _alter(cluster, resources, changes, options)
        if options.alter:
            raise Refused("--alter: what? KEY=VALUE, --add-config or --delete-config")
        return await _describe(cluster, resources, options)

    return run_with_cluster("configs", options, work)


def _changes(options: argparse.Namespace) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for text in options.settings:
        key, separator, value = text.partition("=")
        if separator:
            changes[key] = value or None
    for text in options.add_config:
        for key, separator, value in (item.partition("=") for item in _items(text)):
            if not separator:
                raise Refused(f"--add-config {text}: say key=value,key=[value,value]")
            changes[key.strip()] = value.removeprefix("[").removesuffix("]") if value[:1] == "[" else value
    for text in options.delete_config:
        changes |= dict.fromkeys((key.strip() for key in text.split(",")), None)
    if changes and any("=" not in text for text in options.settings):
        raise Refused("either show settings (KEY) or change them (KEY=VALUE), not both at once")
    if changes and options.describe:
        raise Refused("--describe shows, but KEY=VALUE changes: which of them?")
    return changes


def _items(text: str) -> list[str]:
    """Cut at commas, but not within brackets."""
    items, depth = [""], 0
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth <= 0:
            items.append("")
        else:
            items[-1] += character
    return [item for item in items if item.strip()]


async def _resources(cluster: Cluster, options: argparse.Namespace) -> list[Resource]:
    found = [("topic", name) for name in options.topics] + [("broker", name) for name in options.brokers]
    kind = KINDS.get(options.entity_type or "")
    if options.broker_defaults or (options.entity_default and kind == "broker"):
        found.append(("broker", ""))
    elif kind:
        names = options.entity_name
        if not names and kind == "topic":
            names = sorted(await cluster.metadata())
        if not names and kind == "broker":
            names = [*map(str, sorted(cluster.nodes or (await _nodes(cluster)))), ""]
        found += [(kind, name) for name in names]
        if not names:
            raise Refused(f"--entity-type {options.entity_type}: which? --entity-name NAME")
    if not found:
        raise Refused("settings of what? --topic NAME, --broker ID or --broker-defaults")
    for kind, name in found:
        if kind == "broker" and name and not name.isdecimal():
            raise Refused(f"broker {name!r}: brokers have numbers")
    return found


async def _nodes(cluster: Cluster) -> list[int]:
    await cluster.metadata([])
    return list(cluster.nodes)


async def _alter(
    cluster: Cluster, resources: list[Resource], changes: dict[str, str | None], options: argparse.Namespace
) -> int:
    from minibroker.client.admin import Admin

    await Admin(cluster).alter_configs(dict.fromkeys(resources, changes))
    if options.json:
        print_json({"altered": [{"kind": kind, "name": name or None} for kind, name in resources]})
        return DONE
    for kind, name in resources:
        what = f"config for {kind} {name}" if name else "default config for brokers in the cluster"
        print(f"Completed updating {what}.")
    return DONE


async def _describe(cluster: Cluster, resources: list[Resource], options: argparse.Namespace) -> int:
    from minibroker.client.admin import Admin

    keys = options.settings or None
    described = await Admin(cluster).describe_configs(resources, keys, synonyms=True)
    shown = {}
    for (kind, name), entries in described.items():
        own = DEFAULT_OF_BROKERS if kind == "broker" and not name else OWN[kind]
        shown[kind, name] = [
            entry
            for entry in sorted(entries.values(), key=lambda entry: entry.name)
            if options.all or keys or entry.source == own
        ]
        missing = set(keys or ()) - set(entries)
        if missing:
            raise Refused(f"{kind} {name}: there is no setting {', '.join(sorted(missing))}")
    if options.json:
        print_json([_document(resource, listed) for resource, listed in shown.items()])
        return DONE
    for (kind, name), listed in shown.items():
        which = "All" if options.all else "Dynamic" if name else "Default"
        print(f"{which} configs for {f'{kind} {name}' if name else 'brokers in the cluster'} are:")
        for entry in listed:
            print(_line(entry))
    return DONE


def _line(entry: ConfigEntry) -> str:
    synonyms = ", ".join(f"{SOURCES[one.source]}:{one.name}={_text(one.value)}" for one in entry.synonyms)
    is_sensitive = "true" if entry.is_sensitive else "false"
    return f"  {entry.name}={_text(entry.value)} sensitive={is_sensitive} synonyms={{{synonyms}}}"


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _document(resource: Resource, entries: list[ConfigEntry]) -> dict[str, Any]:
    return {
        "kind": resource[0],
        "name": resource[1] or None,
        "settings": {
            entry.name: {
                "value": entry.value,
                "source": SOURCES.get(entry.source, str(entry.source)),
                "read_only": entry.is_read_only,
                "sensitive": entry.is_sensitive,
            }
            for entry in entries
        },
    }

"""`minibroker faults`: rules and toxics of a broker that runs, set and taken away over its HTTP."""

from __future__ import annotations

from minibroker.cli.connect import Refused, print_json, run_over_http
from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.status import DONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import Any

    from minibroker.client.security import Security

DESCRIPTION = "Let the clients of a broker meet errors, delays and broken connections; list these, take them away."
EPILOG = "minibroker faults add --api Produce --error NOT_LEADER_OR_FOLLOWER --times 2"

# Option -> its value, None for a flag, and what it is for: the names of rules with - for _.
RULE_OPTIONS = {
    "api": ("NAME", "only requests of this API"),
    "version": ("N[-M]", "only in these versions: 7, 3-7, 9+"),
    "topic": ("PATTERN", "only requests that name such a topic"),
    "partition": ("N", "only requests that name this partition"),
    "client-id": ("PATTERN", "only of such clients"),
    "transactional-id": ("PATTERN", "only of producers with such an id"),
    "nth": ("N", "only the n-th request that matches"),
    "times": ("N", "no more often than this"),
    "probability": ("P", "strike only so many of the requests that match, 0 to 1"),
    "delay-ms": ("MS", "let the answer wait"),
    "error": ("NAME", "answer an error, by Kafka's name or code"),
    "after": (None, "answer the error, but carry the request out before"),
    "drop-request": (None, "do as if the request had not come"),
    "drop-response": (None, "carry the request out and do not answer"),
    "close": ("WHEN", "close the connection before or after the request is carried out"),
    "hold": ("WHEN", "let it wait, before or after that, until the rule is removed"),
    "kill": ("WHEN", "kill the broker, before or after that"),
    "truncate": ("BYTES", "cut the answer off and close"),
    "corrupt": ("POSITION", "invert a byte of the answer, or one at random"),
    "throttle-ms": ("MS", "throttle the client"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", default="list", choices=("list", "add", "remove", "clear"))
    parser.add_argument("names", nargs="*", metavar="ID", help="what to remove: a rule's number, a toxic's name")
    add_connection(parser)
    rule = parser.add_argument_group("a rule")
    for name, (metavar, what) in RULE_OPTIONS.items():
        if metavar is None:
            rule.add_argument(f"--{name}", action="store_const", const=True, help=what)
        else:
            rule.add_argument(f"--{name}", metavar=metavar, help=what)
    toxic = parser.add_argument_group("a toxic")
    toxic.add_argument(
        "--toxic", metavar="TYPE", help="latency, bandwidth, slow_close, timeout, reset_peer, slicer or limit_data"
    )
    toxic.add_argument("--set", action="append", default=[], metavar="NAME=N", help="an attribute of it")
    toxic.add_argument("--stream", metavar="STREAM", help="upstream or downstream (downstream)")
    toxic.add_argument("--toxicity", type=float, metavar="P", help="the share of connections that it strikes (1)")
    toxic.add_argument("--name", metavar="NAME", help="to take it away by")
    parser.add_argument("-J", "--json", action="store_true", help="one JSON document")


def run(options: argparse.Namespace) -> int:
    async def work(addresses: list[tuple[str, int]], security: Security | None) -> int:
        await _carry_out(options, list(_calls(options)), addresses, security)
        return DONE

    return run_over_http("faults", options, work)


def _calls(options: argparse.Namespace) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
    """Yield method, path and body of what is to be asked."""
    rule = {name.replace("-", "_"): getattr(options, name.replace("-", "_")) for name in RULE_OPTIONS}
    rule = {name: value for name, value in rule.items() if value is not None}
    toxic = {name: getattr(options, name) for name in ("toxic", "stream", "toxicity", "name")}
    toxic = {name: value for name, value in toxic.items() if value is not None}
    if options.action != "add" and (rule or toxic or options.set):
        raise Refused("what a rule or toxic is like is for `add`")
    if options.names and options.action != "remove":
        raise Refused(f"{' '.join(options.names)}: only `remove` takes names")
    if options.action == "list":
        yield from (("GET", "/faults", None), ("GET", "/toxics", None))
    elif options.action == "clear":
        yield from (("DELETE", "/faults", None), ("DELETE", "/toxics", None))
    elif options.action == "remove":
        if not options.names:
            raise Refused("say which: `minibroker faults` lists their numbers and names")
        from urllib.parse import quote

        for name in options.names:
            yield "DELETE", f"/{'faults' if name.isdecimal() else 'toxics'}/{quote(name, safe='')}", None
    elif options.toxic:
        if rule:
            raise Refused("a rule or a toxic, not both at once")
        kind = toxic.pop("toxic")
        yield "POST", "/toxics", {**toxic, "type": kind, "attributes": _attributes(options.set)}
    elif toxic or options.set:
        raise Refused("--toxic says which toxic it is")
    else:
        yield "POST", "/faults", rule


def _attributes(texts: list[str]) -> dict[str, int]:
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not value.isdecimal():
            raise Refused(f"--set {text}: say name=number")
        found[name] = int(value)
    return found


async def _carry_out(
    options: argparse.Namespace,
    calls: list[tuple[str, str, dict[str, Any] | None]],
    addresses: list[tuple[str, int]],
    security: Security | None,
) -> None:
    from minibroker.client.control import ask
    from minibroker.clock import LoopClock

    clock = LoopClock()
    rows: list[dict[str, Any]] = []
    for host, port in addresses:
        for method, path, body in calls:
            found = await ask(host, port, method, path, body, clock=clock, security=security)
            rows += found if isinstance(found, list) else [found]
    if options.json:
        print_json(rows)
        return
    state = {"list": "", "add": " is set", "remove": " is removed"}
    for row in rows:
        print(_described(row, state[options.action]))
    if options.action == "clear":
        print("nothing is left")


def _described(row: dict[str, Any], state: str) -> str:
    if "type" in row:
        attributes = " ".join(f"{name}={value}" for name, value in row["attributes"].items())
        share = "" if row["toxicity"] == 1 else f" toxicity={row['toxicity']:g}"
        return f"toxic {row['name']}{state}: {row['type']} {row['stream']} {attributes}{share}"
    counts = f"matched {row.pop('matches')}, struck {row.pop('strikes')}"
    number = row.pop("id")
    values = " ".join(name if value is True else f"{name}={value}" for name, value in row.items())
    return f"rule {number}{state}: {values}" + (f" ({counts})" if not state else "")

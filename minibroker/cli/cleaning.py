"""What the commands retention, compact and roll share: cleaning is asked for over the HTTP of a broker.

Of a cluster any broker will do: it is done on all that have the partitions. A row is told of with what was done, or why
nothing was. Where no topic is named, nothing is said of internal topics with which nothing had to be done.
"""

from __future__ import annotations

from minibroker.cli.connect import Refused, print_json, run_over_http
from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.status import DONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import Any

    from minibroker.client.security import Security

    Row = dict[str, Any]  # of minibroker/cleaner/results.py, by the names of its fields

INTERNAL = "__"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("-t", "--topic", metavar="TOPIC", help="only this one; without it all there are")
    parser.add_argument("-p", "--partition", type=int, metavar="N", help="only this partition of the topic")
    parser.add_argument("-J", "--json", action="store_true", help="one JSON document")


def clean(verb: str, options: argparse.Namespace, describe: Callable[[Row], tuple[bool, str]]) -> int:
    """Do it, and tell what was done. describe: whether something was done with the partition of a row, and what."""

    async def work(addresses: list[tuple[str, int]], security: Security | None) -> int:
        if options.partition is not None and options.topic is None:
            raise Refused(f"--partition {options.partition} of which topic? Say --topic too")
        place = {"topic": options.topic, "partition": options.partition}
        rows = await ask_first(addresses, security, "POST", f"/{verb}", place)
        if options.json:
            print_json(rows)
        else:
            _print(rows, describe, tells_internal=options.topic is not None)
        return DONE

    return run_over_http(verb, options, work)


def _print(rows: list[Row], describe: Callable[[Row], tuple[bool, str]], *, tells_internal: bool) -> None:
    has_brokers = len({row["broker"] for row in rows}) > 1
    for row in rows:
        is_done, what = describe(row)
        if is_done or tells_internal or not row["topic"].startswith(INTERNAL):
            where = f" on broker {row['broker']}" if has_brokers else ""
            print(f"{row['topic']}-{row['partition']}{where}: {what}")
    if not rows:
        print("there are no partitions")


async def ask_first(
    addresses: list[tuple[str, int]], security: Security | None, method: str, path: str, body: dict[str, Any] | None
) -> list[Row]:
    """Ask the first broker that answers."""
    from minibroker.client.control import LONG_TIMEOUT_MS, ask
    from minibroker.clock import LoopClock

    clock = LoopClock()
    failure: OSError | None = None
    for host, port in addresses:
        try:
            found: list[Row] = await ask(
                host, port, method, path, body, clock=clock, timeout_ms=LONG_TIMEOUT_MS, security=security
            )
        except ConnectionRefusedError as refused:
            failure = refused
            continue
        return found
    assert failure is not None
    raise failure


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

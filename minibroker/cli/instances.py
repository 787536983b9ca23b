"""`minibroker instances`: what was promised, who may use how much of it, and how full it is, as the master knows it."""

from __future__ import annotations

from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.connect import print_json, run_over_http
from minibroker.cli.status import DONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from minibroker.client.security import Security

    Row = dict[str, Any]

DESCRIPTION = "Show instances: topics or listeners with a promised flow and a capacity, and the share of each broker."
EPILOG = (
    "Step F: every broker may have its part by partitions. P: its part by what it uses. P + 10 %: brokers are used "
    "unevenly, and all but the most used may have a tenth of its part more. Settings: instance.NAME.producer.byte.rate "
    "and others (docs/instances.md)."
)
UNITS = ("B", "KB", "MB", "GB", "TB")
COLUMNS = ("INSTANCE", "BROKER", "PARTS", "FLOW", "PROMISED", "STEP", "SHARE", "USED")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("name", nargs="?", metavar="INSTANCE", help="only this one")
    parser.add_argument("-J", "--json", action="store_true", help="one JSON document")


def run(options: argparse.Namespace) -> int:
    async def work(addresses: list[tuple[str, int]], security: Security | None) -> int:
        from minibroker.cli.cleaning import ask_first

        rows: list[Row] = await ask_first(addresses, security, "GET", "/instances", None)
        if options.name is not None:
            rows = [row for row in rows if row["instance"] == options.name]
        if options.json:
            print_json(rows)
        else:
            _print(rows)
        return DONE

    return run_over_http("instances", options, work)


def _print(rows: list[Row]) -> None:
    if not rows:
        print("there is no such instance: settings such as instance.shop.topic.prefix=shop. make one")
        return
    lines: list[tuple[str, ...]] = [COLUMNS]
    for row in rows:
        for direction, name in (("produced", "in"), ("fetched", "out")):
            flow = row[direction]
            if flow["promised"] is not None:
                lines.append(
                    (
                        *(row["instance"], str(row["broker"]), str(row["partitions"]), name),
                        *(_rate(flow["promised"]), flow["step"], _rate(flow["share"]), _rate(flow["used"])),
                    )
                )
    if len(lines) > 1:
        widths = [max(len(line[index]) for line in lines) for index in range(len(COLUMNS))]
        for line in lines:
            print("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip())
    for name in dict.fromkeys(row["instance"] for row in rows):
        own = [row for row in rows if row["instance"] == name]
        capacity = own[0]["capacity_bytes"]
        if capacity:
            stored = sum(row["stored_bytes"] or 0 for row in own if row["partitions"])
            what = "are refused" if own[0].get("full_policy") == "refuse" else "wait"
            full = f"full: records {what}" if own[0]["is_full"] else "takes records"
            print(f"{name} holds {size(stored)} of {size(capacity)} ({stored * 100 // capacity} %), {full}")


def _rate(flow: float | None) -> str:
    return "-" if flow is None else f"{size(flow)}/s"


def size(count: float) -> str:
    """Return bytes with three digits or so: 12.3 MB."""
    power = 0
    while count >= 1000 and power < len(UNITS) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.0f} {UNITS[power]}" if not power or count >= 100 else f"{count:.1f} {UNITS[power]}"

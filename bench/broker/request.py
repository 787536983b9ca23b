"""Where the microseconds of a small request go: CPU of the broker, by the layers that a request crosses.

What a request takes is measured without any counting, by the clock of the broker's process: 64 requests under way on
one connection share a turn of the loop, and one at a time each takes its own. The difference is the turn: waiting,
receiving, sending, waking, and what a processor forgets meanwhile. The rest is divided as cProfile divides it, less
what noting a call takes; what is written in C counts for who calls it. How often functions are called depends on
nothing but the code.

    python -m bench.broker.request [--rounds N] [--only Produce] [--functions N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.broker.brokers import Broker, Kind
from bench.broker.load import SMALL_BYTES, batch
from bench.broker.raw import Raw, commit_frame, encoded, fetch_frame, produce_frame, wait_for_coordinator
from minibroker.protocol import message

TOPIC, GROUP, MEMBERS = "t", "g", "members"
SESSION_MS = 300_000
IN_FLIGHT = 64
ROUNDS, SECONDS, ROUND_TRIPS = 7, 0.3, 1000
BUILT_IN = "~"
TURN = "turn of the loop"
SYSTEM_CALLS = {"<built-in method posix.pwritev>", "<built-in method posix.pwrite>", "<built-in method posix.pread>"}
# Layer by how the path below minibroker/ begins, or the name of generated code; the first that fits.
LAYERS = (
    ("file system", ()),
    ("connection", ("server/",)),
    ("validation", ("log/validate", "log/scan", "log/batches", "log/append_conversion", "minibroker walk over")),
    ("codecs", ("minibroker ", "schema/", "stored/", "<string>")),
    ("dispatch and framing", ("broker/dispatch", "turns", "protocol/")),
    ("handler", ("broker/",)),
    ("replica", ("replication/",)),
    ("coordinator", ("coordinator/", "groups/", "log/own_batches", "log/build")),
    ("log", ("log/",)),
    ("clock and others", ("",)),
)


def frames(raw: Raw) -> dict[str, bytes]:
    """Make what they need, and return the requests by their names."""
    data = batch(SMALL_BYTES, 1)
    raw.send(produce_frame(TOPIC, data))
    wait_for_coordinator(raw, TOPIC, GROUP)
    wait_for_coordinator(raw, TOPIC, MEMBERS)
    member = joined(raw, MEMBERS)
    topic = message("MetadataRequest").MetadataRequestTopic(name=TOPIC)  # type: ignore[attr-defined]
    return {
        "Produce": produce_frame(TOPIC, data),
        "Fetch": fetch_frame(TOPIC, 0, 1),
        "OffsetCommit": commit_frame(TOPIC, GROUP, 1),
        "Heartbeat": encoded("HeartbeatRequest", group_id=MEMBERS, generation_id=1, member_id=member),
        "Metadata": encoded("MetadataRequest", topics=[topic]),
    }


def joined(raw: Raw, group: str) -> str:
    """Join a new group as its only member, and return its id there."""
    join: Any = message("JoinGroupRequest")
    found = raw.ask(
        "JoinGroupRequest",
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id="",
        protocol_type="consumer",
        protocols=[join.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    member: str = found.member_id
    raw.ask("SyncGroupRequest", group_id=group, generation_id=found.generation_id, member_id=member, assignments=[])
    if raw.ask("HeartbeatRequest", group_id=group, generation_id=1, member_id=member).error_code:
        raise RuntimeError(f"group {group} has not come together")
    return member


def layer_of(file: str, function: str) -> str:
    """Return the layer of a function that is written in Python, or generated."""
    path = file.rpartition("/minibroker/")[2]
    return next(layer for layer, starts in LAYERS if path.startswith(starts))


def shares(calls: Iterable[list[Any]]) -> Counter[str]:
    """Return the seconds of each layer; who sends is left out: that is the loop's."""
    found: Counter[str] = Counter()
    for file, function, count, own_s, by in calls:
        if file != BUILT_IN:
            if function != "_send":
                found[layer_of(file, function)] += own_s
        elif function in SYSTEM_CALLS:
            found["file system"] += own_s
        else:
            for caller_file, caller, times in by:
                if caller_file != BUILT_IN:
                    found[layer_of(caller_file, caller)] += own_s * times / count
    return found


def measure(broker: Broker, raw: Raw, frame: bytes) -> dict[str, float]:
    """Return microseconds of CPU a request: alone, with others, and of each layer; and how many calls it is."""
    raw.pipeline([frame], IN_FLIGHT, SECONDS / 3)
    cpu = broker.cpu_seconds()
    together = raw.pipeline([frame], IN_FLIGHT, SECONDS)
    together_us = (broker.cpu_seconds() - cpu) / together.requests * 1e6
    cpu = broker.cpu_seconds()
    raw.round_trips(frame, ROUND_TRIPS)
    alone_us = (broker.cpu_seconds() - cpu) / ROUND_TRIPS * 1e6
    broker.tell("begin")
    noted = raw.pipeline([frame], IN_FLIGHT, SECONDS)
    calls = json.loads(broker.tell("end"))
    by_layer = shares(calls)
    turn_us = (alone_us - together_us) * IN_FLIGHT / (IN_FLIGHT - 1)
    scale = (together_us - turn_us / IN_FLIGHT) / sum(by_layer.values())
    return {
        "calls": sum(count for _, _, count, _, _ in calls) / noted.requests,
        "together": together_us,
        "alone": alone_us,
        TURN: turn_us,
        **{layer: own_s * scale for layer, own_s in by_layer.items()},
        **{
            f"{file.rpartition('/minibroker/')[2]}: {function}".removeprefix(f"{BUILT_IN}: "): own_s * scale
            for file, function, _, own_s, _ in calls
            if function != "_send"
        },
    }


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for each in rounds for name in each)
    return {name: statistics.median(each.get(name, 0.0) for each in rounds) for name in names}


def table(found: dict[str, dict[str, float]]) -> str:
    def row(words: str, name: str, shown: str = ".1f") -> str:
        cells = (format(each.get(name, 0.0), shown) for each in found.values())
        return f"| {words} | {' | '.join('–' if float(cell) == 0 else cell for cell in cells)} |"

    return "\n".join(
        [
            f"| CPU µs | {' | '.join(found)} |",
            f"|---|{'---:|' * len(found)}",
            row(TURN, TURN),
            *(row(layer, layer) for layer, _ in LAYERS),
            row("**one at a time**", "alone"),
            row(f"**{IN_FLIGHT} in a turn**", "together"),
            row("calls of functions", "calls", ".0f"),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", default="", help="requests whose name has this in it")
    parser.add_argument("--functions", type=int, default=0, help="also the functions that take most of each, so many")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-request-") as directory:
        command = [sys.executable, "-m", "bench.broker.profiled", f"{directory}/data"]
        kind = Kind(lambda order: [command], prints_address=True)
        broker = Broker("minibroker", kind, Path(directory) / "run", {})
        try:
            broker.create_topic(TOPIC, 1)
            with Raw(broker.address) as raw:
                asked = {name: frame for name, frame in frames(raw).items() if arguments.only in name}
                rounds: dict[str, list[dict[str, float]]] = {name: [] for name in asked}
                for _ in range(arguments.rounds):
                    for name, frame in asked.items():
                        rounds[name].append(measure(broker, raw, frame))
        finally:
            broker.stop()
    found = {name: medians(each) for name, each in rounds.items()}
    print(table(found))
    for name, figures in found.items() if arguments.functions else ():
        functions = [each for each in figures if ": " in each or each.startswith("<")]
        most = sorted(functions, key=figures.__getitem__, reverse=True)[: arguments.functions]
        print(f"\n{name}", *(f"{figures[each]:6.2f}  {each}" for each in most), sep="\n")


if __name__ == "__main__":
    main()

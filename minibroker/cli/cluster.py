"""`minibroker cluster`: the verbs of a cluster that runs, through the port of any of its brokers."""

from __future__ import annotations

from minibroker.cli.connect import Refused, print_json, run_over_http
from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.status import DONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from minibroker.client.security import Security
    from minibroker.cluster.verbs import Verb

DESCRIPTION = "Kill, pause, cut, step and ask a cluster that runs; move the clock of one, or of a broker that is alone."
EPILOG = "minibroker cluster kill 2 --lossy; minibroker cluster cut 1 2; minibroker cluster (alone lists the verbs)"
HTTP_TIMEOUT_MS = 120_000
ALIVE_TIMEOUT_MS = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from argparse import SUPPRESS, BooleanOptionalAction

    parser.add_argument("verb", nargs="?", help="what to do; without one they are listed")
    parser.add_argument("words", nargs="*", help="with what: a broker, a topic and a partition, a duration")
    add_connection(parser)
    parser.add_argument("-J", "--json", action="store_true", help="one JSON document")
    options: dict[str, list[str]] = {}
    forms = {}
    for verb in _verbs().values():
        for _, parameter in verb.parameters():
            if parameter.kind is parameter.KEYWORD_ONLY:
                options.setdefault(parameter.name, []).append(verb.name)
                forms[parameter.name] = parameter.annotation
    for name, verbs in options.items():
        option, what = "--" + name.replace("_", "-"), f"of {', '.join(verbs)}"
        if forms[name] == "bool":
            parser.add_argument(option, action=BooleanOptionalAction, default=SUPPRESS, help=what)
        else:
            parser.add_argument(option, default=SUPPRESS, metavar="N", help=what)


def _verbs() -> dict[str, Verb]:
    from minibroker.cluster.verbs import VERBS

    return VERBS


def arguments_of(verb: str, words: list[str], options: argparse.Namespace | None = None) -> dict[str, Any]:
    """Return the words and options of a verb by the names that it has for them."""
    found: dict[str, Any] = {}
    for _, parameter in _verbs()[verb].parameters():
        if parameter.kind is parameter.VAR_POSITIONAL:
            found[parameter.name], words = words, []
        elif parameter.kind is parameter.KEYWORD_ONLY:
            if hasattr(options, parameter.name):
                found[parameter.name] = getattr(options, parameter.name)
        elif words:
            found[parameter.name] = words.pop(0)
    if words:
        raise Refused(f"{verb} has no use for {' '.join(words)}: {usage(verb)}")
    return found


def usage(verb: str) -> str:
    """Return a verb as people type it."""
    words = [verb]
    for _, parameter in _verbs()[verb].parameters():
        name = parameter.name.upper().replace("_", "-")
        if parameter.kind is parameter.VAR_POSITIONAL:
            words.append(f"[{name} ...]")
        elif parameter.kind is parameter.KEYWORD_ONLY:
            words.append(f"[--{name.lower()}{'' if parameter.annotation == 'bool' else ' N'}]")
        else:
            words.append(name if parameter.default is parameter.empty else f"[{name}]")
    return " ".join(words)


def run(options: argparse.Namespace) -> int:
    if options.verb is None:
        for name, verb in _verbs().items():
            print(f"{usage(name)}\n    {verb.says}")
        return DONE

    async def work(addresses: list[tuple[str, int]], security: Security | None) -> int:
        if options.verb not in _verbs():
            raise Refused(f"there is no verb {options.verb!r}: there are {', '.join(_verbs())}")
        arguments = arguments_of(options.verb, options.words, options)
        _print(options, await _ask(addresses, security, options.verb, arguments))
        return DONE

    return run_over_http("cluster", options, work, "minibroker serve --brokers 3")


def _print(options: argparse.Namespace, answer: Any) -> None:
    if options.verb == "state" and not options.json:
        _print_state(answer)
    elif options.json or isinstance(answer, dict):
        print_json(answer)
    elif isinstance(answer, list):
        for row in answer:
            if isinstance(row, dict):
                print_json(row, indent=None)
            else:
                print(" ".join(map(str, row)) if isinstance(row, list) else row)
    elif answer is not None:
        print(answer)


async def _ask(addresses: list[tuple[str, int]], security: Security | None, verb: str, body: dict[str, Any]) -> Any:
    """Ask the first broker that answers: those that are killed or paused do not."""
    from minibroker.client.control import Refusal, ask
    from minibroker.clock import LoopClock

    clock = LoopClock()
    failure: OSError | None = None
    for host, port in addresses:
        try:
            await ask(host, port, "GET", "/health", clock=clock, timeout_ms=ALIVE_TIMEOUT_MS, security=security)
        except Refusal:
            pass  # it is alive: what it says is no JSON
        except OSError as error:
            failure = error
            continue
        return await ask(
            host, port, "POST", f"/cluster/{verb}", body, clock=clock, timeout_ms=HTTP_TIMEOUT_MS, security=security
        )
    assert failure is not None
    raise failure


def _print_state(state: dict[str, Any]) -> None:
    for who, how in state["brokers"].items():
        print(f"{who:>10}  {how}")
    for kind, what in state["waiting"]:
        print(f"{'waits':>10}  {kind}: {what}")
    for each in state["partitions"]:
        isr = ",".join(map(str, each["isr"])) or "nobody"
        print(f"{each['topic']}-{each['partition']}  leader {each['leader']}  epoch {each['leader_epoch']}  ISR {isr}")
        for row in each["replicas"]:
            role = "leads" if row.get("leads") else "in sync" if row["in_sync"] else "behind"
            where = (
                f"start {row['log_start']}  HW {row['high_watermark']}  LEO {row['log_end']}"
                if "log_end" in row
                else "not running"
            )
            print(f"{'b' + str(row['broker']):>10}  {role:8}{where}")

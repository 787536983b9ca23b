"""`minibroker proxy`: between any client and any broker, to see and to record what they say."""

from __future__ import annotations

import sys

from minibroker.cli.connect import DEFAULT_PORT, Refused, addresses_in, complain, properties_of, security_of
from minibroker.cli.status import DONE, FAILED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from minibroker.client.security import Security
    from minibroker.server.connection import Service
    from minibroker.traffic.recording import Recorder

DESCRIPTION = (
    "Stand between clients and brokers: clients are given addresses of the proxy in place of those of brokers. The "
    "first line on stdout is the address for clients."
)
EPILOG = "minibroker proxy --listen 127.0.0.1:19092 --upstream kafka:9092 --record traffic.rec -v"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen", default=f"127.0.0.1:1{DEFAULT_PORT}", metavar="HOST:PORT",
        help=f"for clients of the first broker (127.0.0.1:1{DEFAULT_PORT}); port 0 takes a free one, as others do",
    )  # fmt: skip
    parser.add_argument("--upstream", required=True, metavar="HOST[:PORT]", help="a broker")
    parser.add_argument("--record", metavar="FILE", help="keep every frame; see minibroker replay")
    parser.add_argument("-v", "--verbose", action="store_true", help="print a line for each request")
    parser.add_argument(
        "-X", dest="properties", action="append", default=[], metavar="KEY=VALUE",
        help="how brokers are reached: security.protocol=SSL, ssl.truststore.location=...",
    )  # fmt: skip
    parser.add_argument("--command-config", metavar="FILE", help="the same from a properties file")


def run(options: argparse.Namespace) -> int:
    import asyncio

    from minibroker.traffic.recording import BrokenRecording

    try:
        ((host, port),), (upstream,) = addresses_in(options.listen), addresses_in(options.upstream)
        security = security_of(options, properties_of(options))
        asyncio.run(_proxy(options, (host, port), upstream, security))
    except Refused as refusal:
        complain("proxy", str(refusal))
        return refusal.status
    except ValueError as error:
        one = "one address each for --listen and --upstream"
        complain("proxy", str(error) if isinstance(error, BrokenRecording) else one)
        return FAILED
    except OSError as failure:
        complain("proxy", str(failure))
        return FAILED
    return DONE


async def _proxy(
    options: argparse.Namespace, listen: tuple[str, int], upstream: tuple[str, int], security: Security | None
) -> None:
    import asyncio
    import signal

    from minibroker.clock import LoopClock
    from minibroker.reporter import Reporter
    from minibroker.traffic.proxy import Proxy

    clock, reporter = LoopClock(), Reporter()
    taps: list[Callable[[Service, int], Service]] = []
    recorder: Recorder | None = None
    if options.record:
        from minibroker.traffic.files import open_recorder

        recorder = open_recorder(options.record, clock, reporter.say)
        taps.append(recorder.over)
    if options.verbose:
        from minibroker.traffic.telling import Telling

        taps.append(Telling(clock, lambda line: print(line, flush=True)).over)
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)

    def tap(service: Service, number: int) -> Service:
        for each in taps:
            service = each(service, number)
        return service

    proxy = Proxy(clock, reporter, host=listen[0], security=security, tap=tap)
    try:
        server = await proxy.listen(upstream, listen[1])
        host = f"[{server.host}]" if ":" in server.host else server.host
        print(f"{host}:{server.port}", flush=True)
        print(f"minibroker: in front of {upstream[0]}:{upstream[1]}; Ctrl-C stops", file=sys.stderr)
        await stopping.wait()
    finally:
        await proxy.stop()
        if recorder is not None:
            recorder.close()

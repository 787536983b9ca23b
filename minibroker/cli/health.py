"""`minibroker health`: does a broker answer? For health checks of containers, so it loads next to nothing.

It asks for metadata without topics over a plain socket: asyncio alone would take longer than the question. Brokers of
0.8 and 0.9 hang up on that, and are asked the way they know, which tells of all topics and of no controller.
"""

from __future__ import annotations

import socket

from minibroker.cli.connect import Refused, addresses_of, complain, print_json, properties_of
from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.status import DONE, FAILED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

DESCRIPTION = "Exit with 0 if a broker answers and takes part in a cluster, with 1 if not: for health checks."
METADATA, VERSION = 3, 1  # the oldest that can ask for no topics (0.10); every later broker has it too
OLD_VERSION = 0
TIMEOUT_S_MAX = 86_400
ANSWER_BYTES_MAX = {VERSION: 1 << 20, OLD_VERSION: 100 << 20}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("--timeout", type=_seconds, default=3.0, metavar="SECONDS", help="how long it may take (3)")
    parser.add_argument("-q", "--quiet", action="store_true", help="only the exit status")
    parser.add_argument("-J", "--json", action="store_true", help="one JSON document")


def _seconds(text: str) -> float:
    from argparse import ArgumentTypeError

    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= TIMEOUT_S_MAX:
        raise ArgumentTypeError(f"{text} is no number of seconds above 0, and up to {TIMEOUT_S_MAX}")
    return seconds


def run(options: argparse.Namespace) -> int:
    try:
        is_old = properties_of(options).get("api.version.request") == "false"
        addresses = addresses_of(options)
    except Refused as refusal:
        complain("health", str(refusal))
        return refusal.status
    failures: list[str] = []
    for host, port in addresses:
        try:
            brokers, controller = _ask(host, port, options.timeout, OLD_VERSION if is_old else VERSION)
        except TimeoutError:
            failures.append(f"{host}:{port}: no answer within {options.timeout:g} s")
        except OSError as failure:
            failures.append(f"{host}:{port}: {failure.strerror or failure}")
        except ValueError as failure:
            failures.append(f"{host}:{port}: {failure}")
        else:
            if brokers:
                _report(options, f"{host}:{port}", brokers, controller)
                return DONE
            failures.append(f"{host}:{port}: answers, but knows no broker yet")
    if options.json:
        print_json({"healthy": False, "reasons": failures})
    elif not options.quiet:
        for reason in failures:
            complain("health", reason)
    return FAILED


def _report(options: argparse.Namespace, address: str, brokers: int, controller: int | None) -> None:
    if options.json:
        print_json({"healthy": True, "address": address, "brokers": brokers, "controller": controller})
    elif not options.quiet:
        known = "" if controller is None else f", controller {controller}"
        print(f"{address} is healthy: {brokers} broker{'' if brokers == 1 else 's'}{known}")


def _ask(host: str, port: int, timeout: float, version: int) -> tuple[int, int | None]:
    """Return how many brokers there are, and who the controller is if the broker tells."""
    from minibroker.errors import ProtocolError
    from minibroker.protocol.framing import FrameReader, decode_response, encode_request
    from minibroker.protocol.messages.metadata import MetadataRequest

    with socket.create_connection((host, port), timeout) as connection:
        for chunk in encode_request(MetadataRequest(topics=[]), version, 0, "minibroker-health"):
            connection.sendall(chunk)
        frames = FrameReader(ANSWER_BYTES_MAX[version])
        try:
            while data := connection.recv(65_536):
                for frame in frames.feed(data):
                    answer = decode_response(frame, METADATA, version)[1]
                    controller = None if version == OLD_VERSION else answer.controller_id  # type: ignore[attr-defined]
                    return len(answer.brokers), controller  # type: ignore[attr-defined]
        except ProtocolError as error:
            raise ValueError(f"answers, but not as a Kafka broker would: {error}") from None
    if version != OLD_VERSION:
        return _ask(host, port, timeout, OLD_VERSION)
    raise ValueError("hangs up without an answer: TLS, or no Kafka broker")

"""`minibroker health`: does a broker answer? For health checks of containers, so it loads next to nothing.

It asks for metadata without topics over a plain socket: asyncio alone would take longer than the question. Brokers of
0.8 and 0.9 hang up on that, and are asked the way they know, which tells of all topics and of no controller.
"""

from __future__ import annotations

import socket

from minibroker.cli.connect import Refused, addresses_of, complain, print_json, properties_of, security_of
from minibroker.cli.connect import add_arguments as add_connection
from minibroker.cli.status import DONE, FAILED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from minibroker.client.security import Security
    from minibroker.protocol.headers import Request

DESCRIPTION = "Exit with 0 if a broker answers and takes part in a cluster, with 1 if not: for health checks."
SASL_HANDSHAKE = 17
VERSION = 1  # the oldest that can ask for no topics (0.10); every later broker has it too
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
        given = properties_of(options)
        is_old = given.get("api.version.request") == "false"
        addresses = addresses_of(options)
        security = security_of(options, given)
    except Refused as refusal:
        complain("health", str(refusal))
        return refusal.status
    failures: list[str] = []
    for host, port in addresses:
        try:
            brokers, controller = _ask(host, port, options.timeout, OLD_VERSION if is_old else VERSION, security)
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


def _connected(host: str, port: int, timeout: float, security: Security | None) -> socket.socket:
    plain = socket.create_connection((host, port), timeout)
    if security is None or security.context is None:
        return plain
    try:
        return security.context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


class _Conversation:
    """A connection on which one thing is asked after the other."""

    def __init__(self, connection: socket.socket, address: str, bytes_max: int):
        from minibroker.protocol.framing import FrameReader

        self.address = address
        self._connection = connection
        self._frames = FrameReader(bytes_max)

    def version_of(self, request: Request) -> int:
        """Return the oldest version that says why somebody is not let in (Kafka 1.0)."""
        return 1 if request.api == SASL_HANDSHAKE else 0

    async def call(self, request: Request, *, timeout_ms: int) -> Any:
        answer = self.ask(request, self.version_of(request))
        if answer is None:
            raise ValueError("hangs up in the middle of a login: perhaps it asks for none")
        return answer

    def ask(self, request: Request, version: int) -> Any:
        """Return the answer to a request, None if the broker hangs up."""
        from minibroker.errors import ProtocolError
        from minibroker.protocol.framing import decode_response, encode_request

        for chunk in encode_request(request, version, 0, "minibroker-health"):
            self._connection.sendall(chunk)
        try:
            while data := self._connection.recv(65_536):
                for frame in self._frames.feed(data):
                    return decode_response(frame, request.api, version)[1]
        except ProtocolError as error:
            raise ValueError(f"answers, but not as a Kafka broker would: {error}") from None
        return None


def _log_in(security: Security, conversation: _Conversation, timeout: float) -> None:
    """Do what the client's login does; nothing in it waits, for the socket does."""
    from minibroker.errors import KafkaError

    login = security.authenticate(conversation, round(timeout * 1000))
    try:
        login.send(None)
    except StopIteration:
        pass
    except KafkaError as error:
        words = error.message.removeprefix(f"{conversation.address}: ")
        raise ValueError(words if words.isprintable() else ascii(words)[1:-1]) from None


def _ask(host: str, port: int, timeout: float, version: int, security: Security | None) -> tuple[int, int | None]:
    """Return how many brokers there are, and who the controller is if the broker tells."""
    from minibroker.protocol.messages.metadata import MetadataRequest

    with _connected(host, port, timeout, security) as connection:
        conversation = _Conversation(connection, f"{host}:{port}", ANSWER_BYTES_MAX[version])
        if security is not None and security.mechanism:
            _log_in(security, conversation, timeout)
        answer = conversation.ask(MetadataRequest(topics=[]), version)
    if answer is not None:
        return len(answer.brokers), None if version == OLD_VERSION else answer.controller_id
    if version != OLD_VERSION:
        return _ask(host, port, timeout, OLD_VERSION, security)
    raise ValueError("hangs up without an answer: TLS, a login, or no Kafka broker")

"""How commands reach a broker: its address, the client, and what is said when something goes wrong.

What must hold: whoever reads the message knows what to do next. A broker that is not there is found out at once; only
what a broker itself calls passing is repeated.
"""

from __future__ import annotations

import os
import sys

from minibroker.cli.status import FAILED, USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Mapping

    from minibroker.client.cluster import Cluster
    from minibroker.client.security import Security
    from minibroker.errors import KafkaError

DEFAULT_PORT = 9092
TIMEOUT_MS = 10_000
# Of -X, for every command; produce and consume know more.
COMMON_PROPERTIES = ("api.version.request", "bootstrap.servers", "client.id", "metadata.broker.list")
SECURITY_PROPERTIES = (
    *("security.protocol", "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.certificates"),
    *("ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password", "ssl.key.password"),
    *("ssl.endpoint.identification.algorithm", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"),
    *("sasl.mechanism", "sasl.mechanisms", "sasl.jaas.config", "sasl.username", "sasl.password"),
)
# What librdkafka calls otherwise than Kafka.
OTHER_NAMES = {"ssl.ca.location": "ssl.truststore.location", "sasl.mechanisms": "sasl.mechanism"}

NO_AUTHORIZER = (
    "it asks nobody; with authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer and "
    "super.users=User:NAME it does"
)
NO_CERTIFICATE = "CERTIFICATE_REQUIRED"  # what OpenSSL calls it
NO_TLS = ": no TLS, "  # how our client tells of what Kafka has no code for
HINTS = {
    "CLUSTER_AUTHORIZATION_FAILED": "who asks may not: log in as one of super.users, see --command-config",
    "DELEGATION_TOKEN_AUTH_DISABLED": "the broker makes none: it needs delegation.token.secret.key",
    "DELEGATION_TOKEN_OWNER_MISMATCH": "only the owner and the renewers of a token may do that",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": "log in first, and not with a token: see --command-config",
    "INVALID_PARTITIONS": "partitions can be added, not taken away",
    "INVALID_REPLICATION_FACTOR": "no more replicas than brokers",
    "SECURITY_DISABLED": NO_AUTHORIZER,
    "TOPIC_ALREADY_EXISTS": "--if-not-exists takes that for success",
    "UNKNOWN_TOPIC_OR_PARTITION": "minibroker topics --list shows what there is",
    "UNSUPPORTED_VERSION": "the broker is too old for this, or serves it not",
}


class Refused(Exception):
    """What a user asked for makes no sense, or is not there; the text says what would."""

    def __init__(self, reason: str, status: int = USAGE):
        super().__init__(reason)
        self.status = status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        "--broker-list",
        dest="bootstrap",
        metavar="HOST[:PORT]",
        help="a broker, or several with commas (MINIBROKER_BOOTSTRAP, else localhost:9092)",
    )
    parser.add_argument(
        "-X", "--command-property", dest="properties", action="append", default=[], metavar="KEY=VALUE",
        help="a setting of the client, by librdkafka's or Kafka's name",
    )  # fmt: skip
    parser.add_argument(
        "--command-config", metavar="FILE", help="properties of a client, of which those about TLS and logins count"
    )


def properties_of(options: argparse.Namespace, *known: str) -> dict[str, str]:
    """Return what -X says; only names that mean something here."""
    found = {}
    for text in options.properties:
        key, separator, value = text.partition("=")
        if not separator:
            raise Refused(f"-X {text}: say key=value")
        names = (*known, *COMMON_PROPERTIES, *SECURITY_PROPERTIES)
        if key not in names:
            raise Refused(f"-X {key}: not known here; there are {', '.join(sorted(names))}")
        found[key] = value
    return found


def security_of(options: argparse.Namespace, given: Mapping[str, str]) -> Security | None:
    """Return how connections are to be made safe, by -X before --command-config; None: not at all."""
    settings = _security_in(options.command_config) if options.command_config else {}
    for name, value in given.items():
        if name in SECURITY_PROPERTIES:
            settings[OTHER_NAMES.get(name, name)] = value
    if not settings:
        return None
    if "security.protocol" not in settings:
        raise Refused(f"{', '.join(settings)}: nothing comes of it without security.protocol")
    from minibroker.client.security import Security, SecurityError

    certificate, key = settings.pop("ssl.certificate.location", ""), settings.pop("ssl.key.location", "")
    if certificate != key:
        raise Refused("-X ssl.key.location: write key and certificates into one file, and let both settings name it")
    if key:
        settings["ssl.keystore.location"] = key
    if "sasl.username" in settings:
        words = (f'{name}="{_escaped(settings.pop(f"sasl.{name}", ""))}"' for name in ("username", "password"))
        settings["sasl.jaas.config"] = f"LoginModule required {' '.join(words)};"
    try:
        return Security.of(settings)
    except SecurityError as error:
        raise Refused(str(error)) from None


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _security_in(path: str) -> dict[str, str]:
    """Return what a properties file of a client says about security; the rest is for others."""
    from minibroker.log.checkpoints import BrokenFile
    from minibroker.log.meta_properties import parse_properties

    try:
        with open(path, "rb") as file:
            found = parse_properties(file.read(), path)
    except OSError as error:
        raise Refused(f"--command-config {path}: {error.strerror}") from None
    except BrokenFile as broken:
        raise Refused(f"--command-config {path}, line {broken.line}: {broken.reason}") from None
    return {name: text for name, (_, text) in found.items() if name in SECURITY_PROPERTIES}


def shown(addresses: list[tuple[str, int]]) -> str:
    return ", ".join(f"{host}:{port}" for host, port in addresses)


def silence(asked: str, failure: OSError, starter: str = "minibroker serve") -> str:
    """Say that nobody answers, why, and what would help."""
    number = failure.errno or 0
    why = os.strerror(number) if number > 0 else str(failure) or "no answer"
    return f"nobody answers at {asked} ({why}): is the broker running? `{starter}` starts one"


def addresses_of(options: argparse.Namespace, *known: str) -> list[tuple[str, int]]:
    """Return the brokers to begin with; known: settings that -X may name besides those of every command."""
    given = properties_of(options, *known)
    text = options.bootstrap or given.get("bootstrap.servers") or given.get("metadata.broker.list")
    return addresses_in(text or os.environ.get("MINIBROKER_BOOTSTRAP") or "localhost")


def addresses_in(text: str) -> list[tuple[str, int]]:
    """Return the brokers of host:port,host:port."""
    return [_address(item.strip()) for item in text.split(",") if item.strip()]


def _address(text: str) -> tuple[str, int]:
    plain = text.removeprefix("PLAINTEXT://")
    host, separator, port = plain.rpartition(":")
    if not separator or plain.endswith("]"):
        host, port = plain, str(DEFAULT_PORT)
    if not port.isdecimal() or not host:
        raise Refused(f"{text!r} is no address of a broker; say host:port, such as localhost:9092")
    return host.strip("[]"), int(port)


def run_with_cluster(
    command: str,
    options: argparse.Namespace,
    work: Callable[[Cluster], Awaitable[int]],
    properties: tuple[str, ...] = (),
) -> int:
    """Run what a command does with a cluster; say what went wrong, and return the exit status."""
    import asyncio

    from minibroker.client.cluster import Cluster
    from minibroker.errors import KafkaError, ProtocolError

    cluster: Cluster | None = None
    addresses: list[tuple[str, int]] = []

    async def main() -> int:
        nonlocal cluster
        async with Cluster(
            addresses,
            client_id=given.get("client.id", "minibroker"),
            timeout_ms=TIMEOUT_MS,
            ask_versions=given.get("api.version.request") != "false",
            security=security,
        ) as cluster:
            await cluster.connection()
            return await work(cluster)

    try:
        given = properties_of(options, *properties)
        addresses = addresses_of(options, *properties)
        security = security_of(options, given)
        return asyncio.run(main())
    except Refused as refusal:
        complain(command, str(refusal))
        return refusal.status
    except KafkaError as error:
        for line in _explained(error, addresses, cluster):
            complain(command, line)
    except ProtocolError as error:
        complain(command, f"bytes that are not what they should be: {error}")
    return FAILED


def run_over_http(
    command: str,
    options: argparse.Namespace,
    work: Callable[[list[tuple[str, int]], Security | None], Awaitable[int]],
    starter: str = "minibroker serve",
) -> int:
    """Run what a command does with the HTTP of brokers; say what went wrong, and return the exit status."""
    import asyncio

    from minibroker.client.control import Refusal

    addresses: list[tuple[str, int]] = []

    async def main() -> int:
        return await work(addresses, security)

    try:
        addresses = addresses_of(options)
        security = security_of(options, properties_of(options))
        return asyncio.run(main())
    except Refused as refusal:
        complain(command, str(refusal))
        return refusal.status
    except Refusal as refusal:
        complain(command, str(refusal))
    except OSError as failure:
        complain(command, silence(shown(addresses), failure, starter))
    return FAILED


def complain(command: str, text: str) -> None:
    print(f"minibroker {command}: {text}", file=sys.stderr)


def _explained(error: KafkaError, addresses: list[tuple[str, int]], cluster: Cluster | None) -> list[str]:
    """Return what to say about an error, and what might help."""
    from minibroker.client.connection import CallTimeout, ConnectionLost
    from minibroker.client.descriptions import SomeFailed

    if isinstance(error, SomeFailed):
        return [f"{_named(item)}: {_with_hint(failure)}" for item, failure in error.errors.items()]
    if not isinstance(error, ConnectionLost | CallTimeout):
        return [_with_hint(error)]
    asked = shown(addresses)
    if cluster is not None and cluster.nodes:
        for node in cluster.nodes.values():
            address = f"{node.host}:{node.port}"
            if address in error.message and (node.host, node.port) not in addresses:
                return [
                    f"{error.message}",
                    f"{asked} answers, but says that clients shall use {address}, which cannot be reached from here: "
                    "see advertised.listeners of the broker",
                ]
        return [error.message]
    if "[Errno -" in error.message:
        return [f"{asked}: there is no host of that name"]
    if NO_TLS in error.message:
        return [f"{error.message}: perhaps who listens there speaks none, and security.protocol is another one"]
    if NO_CERTIFICATE in error.message:
        return [
            f"{error.message}",
            f"who listens at {asked} asks clients for a certificate: -X ssl.certificate.location=... and "
            "-X ssl.key.location=..., or both in a file by --command-config",
        ]
    if error.message.startswith("no connection to"):
        return [f"nobody answers at {asked}: is the broker running? `minibroker serve` starts one"]
    return [
        f"{error.message}",
        f"who listens at {asked} speaks TLS perhaps (-X security.protocol=SSL), asks for a login (-X "
        "security.protocol=SASL_PLAINTEXT -X sasl.mechanism=PLAIN -X sasl.username=... -X sasl.password=..., or a file "
        "by --command-config), lets in some "
        "networks only, or is no Kafka broker of 0.10 or later",
    ]


def _with_hint(error: KafkaError) -> str:
    if NO_TLS in error.message:
        return error.message
    hint = HINTS.get(error.code.name)
    return f"{error.code.name}{error.message and f': {error.message}'}{(hint and f' ({hint})') or ''}"


def _named(item: object) -> str:
    return "-".join(map(str, item)) if isinstance(item, tuple) else str(item)


def print_json(value: object, *, indent: int | None = 1) -> None:
    import json

    print(json.dumps(value, indent=indent, ensure_ascii=False))

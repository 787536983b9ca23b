"""What comes by HTTP as requests of Kafka: the same handlers behind the same guards, on the broker that has to answer.

    answer = await asked(node, call, request, 7)      as if a client had sent it from where the call has come from

What must hold: nothing about topics is decided here. Names, limits, rules, quotas and errors are those of the requests;
who asks is ANONYMOUS, for whoever reaches these paths came by a listener without a login.
In a cluster whichever broker is asked finds the leader among those of its own process.
"""

from __future__ import annotations

from minibroker.broker.authorize.access import FAILED, WORDS, Access
from minibroker.broker.dispatch import Context
from minibroker.broker.http_calls import BAD, NOT_NOW, Refused, as_refused
from minibroker.broker.view_source import NodesSource
from minibroker.errors import Error, KafkaError, ProtocolError
from minibroker.security.acls import DESCRIBE, TOPIC
from minibroker.security.principal import ANONYMOUS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping
    from typing import Any, Final, TypeVar

    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.broker.http_calls import Call
    from minibroker.metadata.image import Partition, Topic
    from minibroker.protocol.headers import Request
    from minibroker.replication.replica import Replica

    Made = TypeVar("Made")

CLIENT_ID: Final = "http"
DELAY_MS_MAX: Final = 30_000
FETCH: Final = 1
INT64_MAX: Final = (1 << 63) - 1
PROGRAM: Final = ("127.0.0.1", 0)  # where a program is that has the broker in its own process


class HttpClient:
    """Who came by HTTP, as handlers and guards know the connection of a client."""

    principal = ANONYMOUS

    def __init__(self, node: BrokerParts, call: Call):
        connection, server = call.connection, node.servers[0] if node.servers else None
        self.remote_address: tuple[str, int] = PROGRAM if connection is None else connection.remote_address
        self.local_address: tuple[str, int] = PROGRAM if connection is None else connection.local_address
        self.listener_name = server.listener_name if server is not None else ""
        if connection is not None:
            self.listener_name, self.principal = connection.listener_name, connection.principal
        self.is_closing = False
        self.muted_ms = 0

    def mute(self, delay_ms: int = 0) -> None:
        """Be held back by a quota: the answer waits, for there is nothing else that could."""
        self.muted_ms = max(self.muted_ms, delay_ms)

    def close(self, reason: str = "") -> None:
        self.is_closing = True


async def asked(node: BrokerParts, call: Call, request: Request, version: int) -> Any:
    """Return what a broker answers to a request."""
    client: Any = HttpClient(node, call)
    try:
        answer = await node.handle(request, version, client, CLIENT_ID)
    except ProtocolError as failure:  # the controller cannot be reached
        raise Refused(NOT_NOW, str(failure), Error.BROKER_NOT_AVAILABLE.name) from None
    if client.muted_ms:
        await node.clock.sleep(min(client.muted_ms, DELAY_MS_MAX))
    return answer


def check(code: int, message: str | None) -> None:
    """Raise what an answer says has failed."""
    if code != Error.NONE:
        raise as_refused(KafkaError(Error(code), message or ""))


# What somebody may do


def is_allowed(node: BrokerParts, call: Call, operation: int, topic: str) -> bool:
    return node.authorizer is None or access_of(node, call).may(operation, TOPIC, topic)


def access_of(node: BrokerParts, call: Call) -> Access:
    client: Any = HttpClient(node, call)
    return Access(Context(node, client, 0, CLIENT_ID), FETCH)


def check_allowed(node: BrokerParts, call: Call, operation: int, topic: str) -> None:
    if not is_allowed(node, call, operation, topic):
        raise as_refused(KafkaError(FAILED[TOPIC], WORDS[TOPIC]))


def check_topic(node: BrokerParts, call: Call, operation: int = DESCRIBE) -> Topic:
    """Return the topic that a path names, if there is one with which one may do that."""
    name = call.arguments[0]
    check_allowed(node, call, operation, name)
    return topic_named(node, name)


def topic_named(node: BrokerParts, name: str) -> Topic:
    found = source_of(node).image.topics.get(name)
    if found is None:
        raise as_refused(KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r:.260}"))
    return found


# Who has it


def source_of(node: BrokerParts) -> NodesSource:
    """Return what all brokers of this process are seen by."""
    source = node.feed.source
    assert isinstance(source, NodesSource)
    return source


def partition_of(topic: Topic, number: int) -> Partition:
    if number >= len(topic.partitions):
        text = f"{topic.name} has the partitions 0 to {len(topic.partitions) - 1}, and not {number}"
        raise as_refused(KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, text))
    return topic.partitions[number]


def replica_of(node: BrokerParts, topic: Topic, number: int, broker: int | None = None) -> Replica:
    """Return a replica of a partition: that of a broker, or the leader's."""
    partition = partition_of(topic, number)
    place = f"{topic.name}-{number}"
    if broker is None:
        broker = partition.leader
        if broker < 0:
            raise as_refused(KafkaError(Error.LEADER_NOT_AVAILABLE, f"nobody leads {place}: name a broker"))
    elif broker not in partition.replicas:
        there = ", ".join(map(str, partition.replicas))
        raise as_refused(KafkaError(Error.REPLICA_NOT_AVAILABLE, f"{place} is on {there}, and not on {broker}"))
    (found,) = source_of(node).replicas(topic.name, number, (broker,))
    if found is None:
        text = f"broker {broker} does not run, or has not opened {place}: name another broker"
        raise as_refused(KafkaError(Error.BROKER_NOT_AVAILABLE, text))
    if found.log.offline is not None:
        raise as_refused(KafkaError(Error.KAFKA_STORAGE_ERROR, f"{place} is offline: {found.log.offline}"))
    return found


def running_leader(node: BrokerParts, topic: Topic, number: int) -> BrokerParts:
    """Return the broker that leads a partition, if it answers clients."""
    leader, source = partition_of(topic, number).leader, source_of(node)
    found = source.nodes.get(leader)
    if found is None or source.state_of(leader) != "running":
        text = f"nobody leads {topic.name}-{number}"
        if leader >= 0:
            text = f"broker {leader} leads {topic.name}-{number}, and is {'' if found is None else 'not '}"
            text += "gone" if found is None else f"running: it is {source.state_of(leader)}"
        raise KafkaError(Error.LEADER_NOT_AVAILABLE, text)
    return found


async def read_in_turn(node: BrokerParts, work: Generator[int, None, Made]) -> Made:
    """Return what comes of looking into a log, when nobody else does."""
    async with node.feed.reading:
        try:
            return await node.feed.shares.run(work)  # no broker that is paused holds it up
        except KafkaError as error:
            raise as_refused(error) from None
        except ProtocolError as error:  # bytes that make no sense, or it would take too long
            raise Refused(BAD, str(error)) from None


# Queries


class Query:
    """What stands behind the question mark."""

    def __init__(self, call: Call, *known: str):
        from urllib.parse import parse_qsl

        try:
            pairs = parse_qsl(
                call.query, keep_blank_values=True, strict_parsing=bool(call.query), max_num_fields=100, errors="strict"
            )
        except ValueError:
            raise Refused(BAD, "a query is name=value&name=value, in UTF-8") from None
        self.values: dict[str, str] = {}
        for name, value in pairs:
            if name not in known:
                raise Refused(BAD, f"there is no {name[:50]!r}: a query has {', '.join(known) or 'nothing'}")
            if name in self.values:
                raise Refused(BAD, f"{name} stands there twice")
            self.values[name] = value

    def has(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str, default: str = "") -> str:
        return self.values.get(name, default)

    def number(self, name: str, default: int = 0, *, least: int = 0, most: int = INT64_MAX) -> int:
        text = self.values.get(name)
        return default if text is None else number_of(text, name, least=least, most=most)

    def number_or_none(self, name: str, *, most: int = INT64_MAX) -> int | None:
        return self.number(name, most=most) if name in self.values else None

    def truth(self, name: str, default: bool = False) -> bool:
        return self.one_of(name, ("0", "1"), "1" if default else "0") == "1"

    def one_of(self, name: str, known: Iterable[str], default: str) -> str:
        text = self.values.get(name, default)
        if text not in known:
            raise Refused(BAD, f"{name} is one of {', '.join(known)}, and not {text[:50]!r}")
        return text

    def at_most_one(self, *names: str) -> None:
        given = [name for name in names if name in self.values]
        if len(given) > 1:
            raise Refused(BAD, f"one of {' and '.join(given)} says where to begin, not both")


def number_of(text: str, name: str, *, least: int = 0, most: int = INT64_MAX) -> int:
    """Return a number that a text says, within bounds."""
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and len(text) <= 20 and least <= (number := int(text)) <= most:
        return number
    raise Refused(BAD, f"{name} is a number from {least} to {most}, and not {text[:50]!r}")


def field(body: Mapping[str, Any], name: str, kind: type, words: str, default: Any = None) -> Any:
    """Return a field of a body, of a kind."""
    value = body.get(name, default)
    if value is not default and type(value) is not kind:
        raise Refused(BAD, f"{name} is {words}, and not {value!r:.100}")
    return value


def check_fields(body: Mapping[str, Any], known: Iterable[str]) -> None:
    for name in body:
        if name not in known:
            raise Refused(BAD, f"there is no {name[:50]!r}: a body has {', '.join(known)}")

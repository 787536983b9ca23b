"""Plays a scenario on two brokers at once: each step is asked of both, and their answers are compared.

A scenario speaks in the ids of the expected side; `Names` puts those of the other into its requests. Steps that only
wait for something (a new topic to have a leader) are not compared: how long that takes is no part of an answer.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from minibroker.errors import ProtocolError
from minibroker.protocol.framing import decode_response
from minibroker.protocol.headers import Request, RequestHeader, Response
from minibroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from minibroker.protocol.messages.list_offsets import ListOffsetsRequest
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.protocol.registry import APIS, response_class
from tests.differential.differ import ABSENT, Comparison, Found, Names
from tests.differential.rules import Deviation, deviation_for
from tests.differential.wire import ANSWER, CORRELATION_ID, Outcome, Side

CLIENT_ID = "differential"
SETTLE_SECONDS_MAX = 20.0
UNSUPPORTED_VERSION = 35
# Kafka 4 announces Produce from 0 for the sake of librdkafka and serves it from 3; broken.py tries what it closes on.
SERVED_FROM = {0: 3}


class Difference(NamedTuple):
    """A field, or the kind of outcome, in which two brokers differ."""

    api: str
    version: int
    step: str
    found: Found


class Exchange(NamedTuple):
    """What was asked, and what the expected side said."""

    step: str
    who: str
    version: int
    request: Request
    outcome: str
    answer: Response | None


class Asked(NamedTuple):
    """Who asked what."""

    who: str
    request: Request


class Later:
    """A request whose answer may wait for what others do."""

    def __init__(self, finish: Callable[[], Any]):
        self._finish = finish

    def answer(self) -> Any:
        """Wait for both answers; return the expected one, None if that was no answer."""
        return self._finish()


class Play:
    """Two sides, what was asked of them, and in what they differed."""

    def __init__(self, expected: Side, actual: Side, *, texts: bool = False):
        self.sides = (expected, actual)
        self.names = Names()
        self.ids: dict[str, bytes] = {}  # of topics, as the expected side calls them
        self.texts = texts
        self.differences: list[Difference] = []
        self.deviations: Counter[Deviation] = Counter()
        self.asked: Counter[tuple[int, int]] = Counter()  # (API, version) -> number of requests
        self.watch: Callable[[Exchange], None] | None = None  # is shown everything that was compared
        self._others: dict[str, tuple[Side, Side]] = {}  # further connections, by who speaks on them
        self.is_old = False  # none of them is a Kafka 4
        self.common = self._versions()  # API -> the versions that both serve

    # Asking

    def versions(self, request: type[Request], lowest: int = 0) -> range:
        """Return the versions of an API that both sides serve."""
        both = self.common.get(request.api, range(0))
        return range(max(both.start, lowest), both.stop)

    def newest(self, request: type[Request]) -> int:
        """Return the newest version that both serve; -1 if there is none."""
        return self.common.get(request.api, range(0)).stop - 1

    def ask(self, step: str, request: Request, version: int | None = None, who: str = "") -> Any:
        """Ask both sides; return the answer of the expected one, None if that was no answer."""
        version = self.newest(type(request)) if version is None else version
        return self._exchange(step, request, version, lambda side: side.receive(), who)

    def ask_later(self, step: str, request: Request, version: int, who: str) -> Later:
        """Ask both sides on the connections of somebody who then waits, while others go on."""
        sides = self._connections(who)
        self._send(sides, self._frames(request, version, who))

        def finish() -> Any:
            outcomes = [side.receive() for side in sides]
            return self._judge(step, request.api, version, outcomes, sides, Asked(who, request))

        return Later(finish)

    def hang_up(self) -> None:
        """Close the connections that were made for somebody."""
        for sides in self._others.values():
            for side in sides:
                side.close()
        self._others.clear()

    def ask_quietly(self, step: str, request: Request, version: int) -> Any:
        """Ask what may have no answer."""
        return self._exchange(step, request, version, lambda side: side.receive_or_probe())

    def ask_silence(self, step: str, request: Request, version: int, seconds: float) -> Any:
        """Ask what Kafka is known not to answer, nor anything else behind it."""
        return self._exchange(step, request, version, lambda side: side.receive(seconds))

    def ask_bytes(self, step: str, api: int, version: int, frame: bytes) -> None:
        """Ask with bytes that need not be a request; connections are closed afterwards."""
        self._send(self.sides, [frame, frame])
        outcomes = [side.receive_or_probe() for side in self.sides]
        self._judge(step, api, version, outcomes, self.sides)
        for side in self.sides:
            side.close()

    def try_both(self, request: Request, version: int | None = None) -> list[Any]:
        """Ask both sides without comparing; return both answers."""
        version = self.newest(type(request)) if version is None else version
        self._send(self.sides, self._frames(request, version))
        return [_decoded(side.receive(), request.api, version) for side in self.sides]

    # Waiting

    def wait_for(
        self, what: str, request: Request, holds: Callable[[Any], bool], version: int | None = None
    ) -> list[Any]:
        """Ask each side again and again until its answer is as it should be; return both answers."""
        version = self.newest(type(request)) if version is None else version
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        answers = []
        for side, frame in zip(self.sides, self._frames(request, version)):
            while True:
                side.send(frame)
                answer = _decoded(side.receive(), request.api, version)
                if answer is not None and holds(answer):
                    break
                if time.monotonic() > deadline:
                    difference = Found(side.name, what, f"not within {SETTLE_SECONDS_MAX} s")
                    self._differ("wait", -1, f"wait for {what}", difference)
                    break
            answers.append(answer)
        return answers

    def settle(self, *topics: str) -> None:
        """Wait until topics have leaders that serve; learn their ids."""
        topic = MetadataRequest.MetadataRequestTopic
        request = MetadataRequest(topics=[topic(name=name) for name in topics], allow_auto_topic_creation=False)

        def serves(answer: MetadataResponse) -> bool:
            return all(row.error_code == 0 and row.partitions and _led(row.partitions) for row in answer.topics)

        answers = self.wait_for(f"leaders of {', '.join(topics)}", request, serves)
        if not all(answers):
            return
        theirs, ours = ({row.name: row for row in answer.topics} for answer in answers)
        for name in topics:
            if name in theirs and name in ours:
                self.ids[name] = theirs[name].topic_id
                self.names.learn("topic_id", theirs[name].topic_id, ours[name].topic_id)
        self._wait_for_logs({name: len(theirs[name].partitions) for name in topics if name in theirs})

    def settle_gone(self, *topics: str) -> None:
        """Wait until deleted topics are known to nobody."""
        topic = MetadataRequest.MetadataRequestTopic
        request = MetadataRequest(topics=[topic(name=name) for name in topics], allow_auto_topic_creation=False)
        self.wait_for(
            f"end of {', '.join(topics)}", request, lambda answer: all(row.error_code != 0 for row in answer.topics)
        )

    def _wait_for_logs(self, topics: dict[str, int]) -> None:
        Topic = ListOffsetsRequest.ListOffsetsTopic
        Partition = Topic.ListOffsetsPartition
        request = ListOffsetsRequest(replica_id=-1, topics=[
            Topic(name=name, partitions=[Partition(partition_index=index, timestamp=-1) for index in range(count)])
            for name, count in topics.items()
        ])  # fmt: skip
        self.wait_for(
            f"logs of {', '.join(topics)}",
            request,
            lambda answer: all(part.error_code == 0 for topic in answer.topics for part in topic.partitions),
        )

    # How it is done

    def _exchange(
        self, step: str, request: Request, version: int, receive: Callable[[Side], Outcome], who: str = ""
    ) -> Any:
        sides = self._connections(who)
        self._send(sides, self._frames(request, version, who))
        outcomes = [receive(side) for side in sides]
        return self._judge(step, request.api, version, outcomes, sides, Asked(who, request))

    def _connections(self, who: str) -> tuple[Side, Side]:
        if not who:
            return self.sides
        if who not in self._others:
            self._others[who] = (type(self.sides[0])(self.sides[0].name), type(self.sides[1])(self.sides[1].name))
        return self._others[who]

    def _frames(self, request: Request, version: int, who: str = "") -> list[bytes]:
        client_id = who or CLIENT_ID
        return [_frame(asked, version, client_id) for asked in (request, self.names.translate(request))]

    def _send(self, sides: tuple[Side, Side], frames: list[bytes]) -> None:
        for side, frame in zip(sides, frames):
            side.send(frame)

    def _judge(
        self,
        step: str,
        api: int,
        version: int,
        outcomes: list[Outcome],
        sides: tuple[Side, Side],
        asked: Asked | None = None,
    ) -> Any:
        self.asked[api, version] += 1
        name = APIS.get(api, str(api))
        expected, actual = outcomes
        answer = None
        if expected.kind != actual.kind:
            self._differ(name, version, step, Found("outcome", expected.kind, actual.kind))
            answer = _decoded(expected, api, version)
        elif expected.kind == ANSWER:
            answer = self._compare(step, name, version, api, outcomes, sides)
        if self.watch and asked:
            self.watch(Exchange(step, asked.who, version, asked.request, expected.kind, answer))
        return answer

    def _compare(
        self, step: str, name: str, version: int, api: int, outcomes: list[Outcome], sides: tuple[Side, Side]
    ) -> Any:
        answers: list[Any] = []
        for side, outcome in zip(sides, outcomes):
            try:
                answers.append(_decoded(outcome, api, version))
            except (ProtocolError, AssertionError) as error:
                self._differ(name, version, step, Found(f"bytes of {side.name}", "a response", str(error)))
        if len(answers) == 2:
            comparison = Comparison(f"{name}Response", self.names, self.texts)
            comparison.compare(answers[0].to_dict(), answers[1].to_dict())
            for found in comparison.found:
                self._differ(name, version, step, found)
        return answers[0] if answers else None

    def _differ(self, api: str, version: int, step: str, found: Found) -> None:
        deviation = deviation_for(api, version, step, found.path, is_old=self.is_old)
        if deviation:
            self.deviations[deviation] += 1
        else:
            self.differences.append(Difference(api, version, step, found))

    def _versions(self) -> dict[int, range]:
        """Return what both serve, asked for in version 0, which all brokers since 0.10 know."""
        ranges = []
        for answer in self.try_both(ApiVersionsRequest(), 0):
            assert isinstance(answer, ApiVersionsResponse), "a broker does not say what it serves"
            ranges.append({row.api_key: (row.min_version, row.max_version) for row in answer.api_keys})
        self.is_old = all(served[1][0] == 0 for served in ranges)  # both serve Fetch v0
        common = {}
        for api in ranges[0].keys() & ranges[1].keys():
            (first, last), (other_first, other_last) = ranges[0][api], ranges[1][api]
            served_from = 0 if self.is_old else SERVED_FROM.get(api, 0)
            common[api] = range(max(first, other_first, served_from), min(last, other_last) + 1)
        return common


def frame_of(body: bytes, api: int, version: int, header_version: int = 1, client_id: str = CLIENT_ID) -> bytes:
    """Return header and body of a request."""
    header = RequestHeader(
        request_api_key=api, request_api_version=version, correlation_id=CORRELATION_ID, client_id=client_id
    )
    return header.encode(header_version) + body


def _frame(request: Request, version: int, client_id: str = CLIENT_ID) -> bytes:
    return frame_of(request.encode(version), request.api, version, request.header_version(version), client_id)


def _decoded(outcome: Outcome, api: int, version: int) -> Response | None:
    if outcome.kind != ANSWER:
        return None
    if api == ApiVersionsRequest.api and outcome.frame[4:6] == UNSUPPORTED_VERSION.to_bytes(2, "big"):
        version = 0
    if version not in range(response_class(api).schema.first_version, response_class(api).schema.last_version + 1):
        raise ProtocolError("an answer to an unknown version", 0, "frame")
    header, response = decode_response(outcome.frame, api, version)
    assert header.correlation_id == CORRELATION_ID, f"answers request {header.correlation_id}"
    return response


def _led(partitions: list[Any]) -> bool:
    return all(part.error_code == 0 and part.leader_id >= 0 for part in partitions)


def describe(differences: list[Difference], names: tuple[str, str] = ("expected", "actual")) -> str:
    """Return all differences for a reader, those of one kind together first."""
    if not differences:
        return "no differences"
    kinds: dict[tuple[str, str], list[Difference]] = {}
    for difference in differences:
        path = "".join(
            part.partition("]")[2] if index else part for index, part in enumerate(difference.found.path.split("["))
        )
        kinds.setdefault((difference.api, path), []).append(difference)
    lines = [f"{len(differences)} differences in {len(kinds)} fields:"]
    for (api, path), found in sorted(kinds.items()):
        lines.append(f"  {len(found):4}  {api} v{_ranges({one.version for one in found})}  {path}")
    last = None
    width = max(len(name) for name in names)
    for api, version, step, field in differences:
        if (api, version, step) != last:
            last = (api, version, step)
            lines.append(f"\n{api} v{version}, {step}")
        lines += [f"    {field.path}"]
        lines += [f"        {name:{width}}  {_shown(value)}" for name, value in zip(names, field[1:])]
    return "\n".join(lines)


def _ranges(versions: set[int]) -> str:
    """Write {3, 4, 5, 8} as 3-5,8."""
    parts: list[list[int]] = []
    for version in sorted(versions):
        if parts and parts[-1][1] == version - 1:
            parts[-1][1] = version
        else:
            parts.append([version, version])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _shown(value: Any) -> str:
    text = value if value is ABSENT else value.hex() if isinstance(value, bytes) else repr(value)
    return text if len(text) <= 400 else f"{text[:400]}... ({len(text)} characters)"

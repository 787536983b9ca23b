"""Replays what real brokers of 2.8, 3.9 and 4.4 answered once (tests/golden/sessions): no Java needed.

The recordings were made with one node that held the topics of tests/golden/logdirs, so the broker that is asked is
started on a copy of such a directory (`prepared` makes it), in virtual time that begins when they were made. Each
recorded request is sent as it was but for ids: those that the broker made itself are put in, as play.py does. The
answers are compared under rules.py.

Those of transactions (record.py) began with an empty broker, and are replayed with one.

Steps of APIs that the broker does not announce are left out.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import Any, NamedTuple

from minibroker.errors import ProtocolError
from minibroker.log.memory_storage import MemoryStorage
from minibroker.protocol.framing import decode_request, decode_response, encode_request
from minibroker.protocol.messages.api_versions import ApiVersionsResponse
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.registry import APIS
from tests.broker.virtual_broker import virtual_broker
from tests.differential.differ import Comparison, Found, Names
from tests.differential.kafka import SETTINGS as TRANSACTION_SETTINGS
from tests.differential.play import Difference, describe
from tests.differential.rules import deviation_for, session_rule_for
from tests.differential.wire import ANSWER, CLOSED, NOTHING, PROBE, Outcome, Side, VirtualSide
from tests.goldens import log_files, sessions, transactions

RELEASES = ("2.8", "3.9", "4.4")
DIRECTORY = {  # release -> the log directory that the recorded broker had been started on, or one like it
    "2.8": "kraft39-1-before-clean",
    "3.9": "kraft39-1-before-clean",
    "4.4": "kraft44-1",
}
NUMBERS = {name: number for number, name in APIS.items()}
KINDS = {"answer": ANSWER, "closed": CLOSED, "no answer": NOTHING}
# The recorded brokers were set so; described settings show it.
SETTINGS = {
    "log.retention.ms": "-1",
    "log.retention.bytes": "-1",
    "log.index.size.max.bytes": "8192",
    "num.io.threads": "2",
}
WAITED_FOR = "metadata v0 of the created topic"  # the recording waited before it
# A second member joined in between, on a connection of its own that was not recorded, and had to wait.
ALONE, NOT_ALONE = "first of two members", "heartbeat during a rebalance"
ATTEMPTS_MAX = 2000
RECORDED_MS = 1_795_263_200_000
FORMATS = {
    "v0": "0.9.0",
    "v1": "0.10.2-IV0",
    "v2": "2.8-IV1",
    "mi": "2.8-IV1",
}  # by the first letters of a topic's name
OLDER = "zk28-1-before-clean"  # what the broker of 2.8 held besides: logs of formats v0, v1 and v2


class Replay(NamedTuple):
    """What came of a replay."""

    differences: list[Difference]
    asked: int
    left_out: Counter[str]  # why -> steps
    allowed: Counter[str]  # reason -> differences


def replay(release: str) -> Replay:
    """Ask a broker what a release was asked; return how its answers differ."""
    storage = prepared(release)
    with virtual_broker(SETTINGS, as_version=release, storage=storage, start_ms=RECORDED_MS) as broker:
        side, second, names = VirtualSide(broker), VirtualSide(broker), Names()
        found = Replay([], 0, Counter(), Counter())
        served = _served(side)
        asked = 0
        for step in sessions(release):
            why = _why_not(step, served)
            if why:
                found.left_out[why] += 1
                continue
            asked += 1
            _replay_step(step, side, names, release, found)
            if step["name"] == ALONE:
                second.send(bytes.fromhex(step["request"]))
        side.close()
        second.close()
        return found._replace(asked=asked)


def replay_transactions(release: str) -> Replay:
    """Ask an empty broker what a release was asked about transactions."""
    recorded, *steps = transactions(release)
    with virtual_broker(TRANSACTION_SETTINGS, as_version=release, start_ms=recorded["recorded_ms"]) as broker:
        names, found = Names(), Replay([], len(steps), Counter(), Counter())
        sides: dict[str, VirtualSide] = {}
        for step in steps:
            who = _client_of(step)
            _replay_step(step, sides.setdefault(who, VirtualSide(broker)), names, release, found)
        for side in sides.values():
            side.close()
        return found


def _client_of(step: dict[str, Any]) -> str:
    header, _ = decode_request(bytes.fromhex(step["request"]))
    return header.client_id or ""


def prepared(release: str) -> MemoryStorage:
    """Return what a broker must hold that is to be asked the questions of a release."""
    storage = MemoryStorage(lambda: RECORDED_MS)
    _unpack(storage, log_files(DIRECTORY[release]))
    if release != "2.8":
        return storage
    # A directory of the ZooKeeper age knows no topics: make them here, then put its logs in place of the empty ones.
    logs = {path: content for path, content in log_files(OLDER).items() if path.endswith((".log", ".snapshot"))}
    topics = sorted({path.split("/")[0].removesuffix("-0") for path in logs})
    with virtual_broker(as_version=release, storage=storage, start_ms=RECORDED_MS) as broker:
        Topic = CreateTopicsRequest.CreatableTopic
        rows = [
            Topic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                assignments=[],
                configs=[Topic.CreatableTopicConfig(name="message.format.version", value=FORMATS[name[:2]])],
            )
            for name in topics
        ]
        broker.ask(CreateTopicsRequest(topics=rows), 5)
    _unpack(storage, {path: content for path, content in logs.items() if storage.exists(path.split("/")[0])})
    return storage


def _unpack(storage: MemoryStorage, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        storage.make_directory(path.rpartition("/")[0])
        if storage.exists(path):
            storage.remove(path)
        file = storage.open(path, create=True)
        file.append([content])
        file.close()


def _replay_step(step: dict[str, Any], side: VirtualSide, names: Names, release: str, found: Replay) -> None:
    recorded = Outcome(KINDS[step["result"]], bytes.fromhex(step.get("response", "")))
    api, version = step["api"], step["version"]
    request = _translated(bytes.fromhex(step["request"]), names)
    allowed: list[str] = []
    left: list[Found] = []
    for _ in range(ATTEMPTS_MAX if step["name"] in (WAITED_FOR, NOT_ALONE) or step.get("waited") else 1):
        side.send(request)
        outcome = side.receive_or_probe() if step["result"] == "no answer" else side.receive()
        if step["name"] == WAITED_FOR and len(outcome.frame) == len(recorded.frame):
            break
        allowed, left = [], []
        for difference in _differences(step, recorded, outcome, names):
            reason = _reason(release, api, version, step["name"], difference.path)
            allowed += [reason] if reason else []
            left += [] if reason else [difference]
        if not left:
            break
        side.pause()
    found.allowed.update(allowed)
    found.differences.extend(Difference(str(api), version, f"{step['step']}: {step['name']}", each) for each in left)


def _reason(release: str, api: object, version: int, name: str, path: str) -> str:
    """Return why a difference is allowed, nothing if it is not."""
    of_session = session_rule_for(release, api, name, path)
    rule = of_session or deviation_for(str(api), version, name, path, is_old=release < "4")
    return rule.reason if rule else ""


def _differences(step: dict[str, Any], recorded: Outcome, outcome: Outcome, names: Names) -> list[Found]:
    api, version = step["api"], step["version"]
    number = NUMBERS[api] if api in NUMBERS else int(api)
    if outcome.kind != recorded.kind:
        return [Found("outcome", recorded.kind, outcome.kind)]
    if outcome.kind != ANSWER:
        return []
    comparison = Comparison(f"{api}Response", names)
    try:
        body_version = 0 if number == 18 and recorded.frame[4:6] == b"\0\x23" else version
        expected, actual = (
            decode_response(frame, number, body_version)[1] for frame in (recorded.frame, outcome.frame)
        )
        comparison.compare(expected.to_dict(), actual.to_dict())
    except ProtocolError as error:
        comparison.add("bytes", "a response", str(error))
    return comparison.found


def _translated(request: bytes, names: Names) -> bytes:
    """Return a request with the ids that this broker gave."""
    try:
        header, message = decode_request(request)
    except (ProtocolError, LookupError):
        return request  # not meant to be understood
    translated = names.translate(message)
    if translated == message:
        return request
    version, correlation_id = header.request_api_version, header.correlation_id
    return b"".join(encode_request(translated, version, correlation_id, header.client_id))[4:]


OFFSET_COMMIT = 8


def _why_not(step: dict[str, Any], served: set[int]) -> str:
    number = NUMBERS.get(step["api"])
    if number is not None and step["result"] == "answer" and number not in served:
        return f"{step['api']} is not announced"
    if step["api"] == "OffsetFetch" and OFFSET_COMMIT not in served:
        return "offsets cannot be committed"
    if "Share" in str(step["api"]):
        return "share groups are switched off; how that is answered is compared with a Kafka of which it is true"
    return ""


def _served(side: Side) -> set[int]:
    side.send(PROBE)
    answer = decode_response(side.receive().frame, 18, 0)[1]
    assert isinstance(answer, ApiVersionsResponse)
    return {row.api_key for row in answer.api_keys}


def report(found: Replay) -> str:
    """Return a replay for a reader."""
    lines = [describe(found.differences, ("recorded", "answered")), f"\n{found.asked} requests"]
    lines += [f"left out, {count} steps: {why}" for why, count in found.left_out.items()]
    lines += [f"allowed, {count} differences: {reason}" for reason, count in found.allowed.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.differential.sessions", description=__doc__)
    parser.add_argument("release", choices=RELEASES)
    outcome = replay(parser.parse_args().release)
    print(report(outcome))
    sys.exit(1 if outcome.differences else 0)

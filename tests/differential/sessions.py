"""Replays what real brokers of 2.8, 3.9 and 4.4 answered once (tests/golden/sessions): no Java needed.

The recordings were made with one node that held the topics of tests/golden/logdirs, so the broker that is asked must
have been started on a copy of such a directory (`prepare` makes it). Each recorded request is sent as it was but for
ids: those that the broker made itself are put in, as play.py does. The answers are compared under rules.py.

Steps of APIs that the broker does not announce are left out, and so are those that follow from them (TRANSACTIONS).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from minibroker.errors import ProtocolError
from minibroker.protocol.framing import decode_request, decode_response, encode_request
from minibroker.protocol.messages.api_versions import ApiVersionsResponse
from minibroker.protocol.messages.create_topics import CreateTopicsRequest
from minibroker.protocol.registry import APIS
from tests.differential.differ import Comparison, Found, Names, seal
from tests.differential.ours import ours
from tests.differential.play import Difference, describe
from tests.differential.rules import session_rule_for
from tests.differential.wire import ANSWER, CLOSED, NOTHING, PROBE, Outcome, Side
from tests.goldens import log_files, sessions

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
FAR_FUTURE = "produce v8 timestamp far in the future"  # 4.4 refuses it; the recorded time is past by and by
FAR_MS, TIMES_AT = 40 * 86_400_000, slice(27, 43)  # both times of a v2 batch
OF_TRANSACTIONS = {  # they show what a transaction did that may be left out
    "describe producers",
    "non-transactional batch of a producer in a transaction",
    "list offsets in an open transaction, committed",
    "list offsets in an open transaction, uncommitted",
    "fetch v4 read committed after the transactions",
    "offset fetch v7 unstable",
}
TRANSACTION = 1  # type of a coordinator
TRANSACTIONAL_IDS = ("transactional_id", "v3_and_below_transactional_id", "transactional_ids")
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


def replay(release: str, address: str) -> Replay:
    """Ask a broker what a release was asked; return how its answers differ."""
    side, second, names = Side(address), Side(address), Names()
    found = Replay([], 0, Counter(), Counter())
    try:
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
        return found._replace(asked=asked)
    finally:
        side.close()
        second.close()


def prepare(release: str, data: Path) -> None:
    """Put into an empty directory what a broker must hold that is to be asked the questions of a release."""
    _unpack(DIRECTORY[release], data)
    if release != "2.8":
        return
    # A directory of the ZooKeeper age knows no topics: make them here, then put its logs in place of the empty ones.
    logs = {path: content for path, content in log_files(OLDER).items() if path.endswith((".log", ".snapshot"))}
    topics = sorted({path.split("/")[0].removesuffix("-0") for path in logs})
    like = ("--data-dir", str(data), "--as-version", "2.8")
    with ours(data.parent / "prepare.txt", *like, settings={}) as address:
        side = Side(address)
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
        side.send(b"".join(encode_request(CreateTopicsRequest(topics=rows), 5, 1, None))[4:])
        side.receive()
        side.close()
    for path, content in logs.items():
        if (data / path).parent.is_dir():
            (data / path).write_bytes(content)


def _unpack(name: str, data: Path) -> None:
    for path, content in log_files(name).items():
        (data / path).parent.mkdir(parents=True, exist_ok=True)
        (data / path).write_bytes(content)


def _replay_step(step: dict[str, Any], side: Side, names: Names, release: str, found: Replay) -> None:
    recorded = Outcome(KINDS[step["result"]], bytes.fromhex(step.get("response", "")))
    api, version = step["api"], step["version"]
    number = NUMBERS[api] if api in NUMBERS else int(api)
    request = _translated(bytes.fromhex(step["request"]), names)
    if step["name"] == FAR_FUTURE and release == "4.4":
        request = _put_off(request)
    outcome = Outcome(NOTHING)
    for _ in range(ATTEMPTS_MAX if step["name"] in (WAITED_FOR, NOT_ALONE) else 1):
        side.send(request)
        outcome = side.receive_or_probe() if step["result"] == "no answer" else side.receive()
        if outcome.frame == recorded.frame:
            break
        if step["name"] == WAITED_FOR and len(outcome.frame) == len(recorded.frame):
            break
    differences = []
    if outcome.kind != recorded.kind:
        differences.append(Found("outcome", recorded.kind, outcome.kind))
    elif outcome.kind == ANSWER:
        comparison = Comparison(f"{api}Response", names)
        try:
            body_version = 0 if number == 18 and recorded.frame[4:6] == b"\0\x23" else version
            expected, actual = (
                decode_response(frame, number, body_version)[1] for frame in (recorded.frame, outcome.frame)
            )
            comparison.compare(expected.to_dict(), actual.to_dict())
        except ProtocolError as error:
            comparison.add("bytes", "a response", str(error))
        differences = comparison.found
    for difference in differences:
        rule = session_rule_for(release, api, step["name"], difference.path)
        if rule:
            found.allowed[rule.reason] += 1
        else:
            found.differences.append(Difference(str(api), version, f"{step['step']}: {step['name']}", difference))


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


def _put_off(request: bytes) -> bytes:
    """Return a request whose record is as far in the future as it was when it was recorded."""
    message: Any = decode_request(request)[1]
    records = bytes(message.topic_data[0].partition_data[0].records)
    changed = bytearray(records)
    changed[TIMES_AT] = 2 * (time.time_ns() // 1_000_000 + FAR_MS).to_bytes(8, "big")
    seal(changed, 0, len(changed))
    return request.replace(records, changed)


OFFSET_COMMIT = 8


def _why_not(step: dict[str, Any], served: set[int]) -> str:
    number = NUMBERS.get(step["api"])
    if number is not None and step["result"] == "answer" and number not in served:
        return f"{step['api']} is not announced"
    if step["api"] == "OffsetFetch" and OFFSET_COMMIT not in served:
        return "offsets cannot be committed"
    if "Share" in str(step["api"]):
        return "share groups are switched off; how that is answered is compared with a Kafka of which it is true"
    if step["name"] in OF_TRANSACTIONS or _is_transactional(step):
        return "there are no transactions yet"
    return ""


def _is_transactional(step: dict[str, Any]) -> bool:
    try:
        message: Any = decode_request(bytes.fromhex(step["request"]))[1]
    except (ProtocolError, LookupError):
        return False
    if getattr(message, "key_type", None) == TRANSACTION or step["api"] == "ListTransactions":
        return True
    return any(getattr(message, name, None) for name in TRANSACTIONAL_IDS)


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
    parser.add_argument("address", metavar="HOST:PORT")
    given = parser.parse_args()
    outcome = replay(given.release, given.address)
    print(report(outcome))
    sys.exit(1 if outcome.differences else 0)

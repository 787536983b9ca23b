"""Plays a script of requests, topics and time against a ConsumerGroup, and says what came of each step.

A step is a dict, as the file consumer-groups.jsonl.gz holds them beside what Kafka's own GroupMetadataManager did. The
outcome has the same form: rows in batches, an answer or an error. Order within an assignment is not compared: it is
that of Java's hash tables there and by number here.
"""

from __future__ import annotations

from typing import Any

from minibroker.errors import Error, KafkaError
from minibroker.groups import classic_members_in_consumer_group as classic_in_consumer
from minibroker.groups.classic_members import Member as ClassicMember
from minibroker.groups.consumer import ConsumerGroup, group_not_found
from minibroker.groups.consumer_protocol import read_assignment
from minibroker.groups.describe import described
from minibroker.groups.records import decode, encode
from minibroker.groups.topics import topic_hash
from minibroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from minibroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from minibroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from minibroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from minibroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from minibroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

GROUP = "g"
REQUESTS: dict[str, Any] = {
    "JoinGroup": JoinGroupRequest,
    "SyncGroup": SyncGroupRequest,
    "Heartbeat": HeartbeatRequest,
    "LeaveGroup": LeaveGroupRequest,
}
RESPONSES: dict[str, Any] = {
    "ConsumerGroupHeartbeat": ConsumerGroupHeartbeatResponse,
    "JoinGroup": JoinGroupResponse,
    "SyncGroup": SyncGroupResponse,
    "Heartbeat": HeartbeatResponse,
    "LeaveGroup": LeaveGroupResponse,
}
ORDERLESS = {
    *("partitions", "topic_partitions", "assigned_partitions", "partitions_pending_revocation"),
    *("members", "subscribed_topic_names"),
}
DEFAULTS = {
    "consumer.session.timeout.ms": 45_000,
    "consumer.heartbeat.interval.ms": 5_000,
    "consumer.assignment.interval.ms": 1_000,
    "group.consumer.max.size": 100_000,
    "group.consumer.assignors": ["uniform", "range"],
    "group.consumer.regex.refresh.interval.ms": 600_000,
    "group.consumer.migration.policy": "bidirectional",
    "group.max.size": 100_000,
}


class Settings:
    """Settings of the group and its broker in one."""

    def __init__(self, **changed: Any):
        self.values = DEFAULTS | changed

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def broker(self) -> Settings:
        return self


class MadeTopic:
    def __init__(self, name: str, topic_id: bytes, racks: list[list[str]]):
        self.name, self.topic_id, self.racks = name, topic_id, racks

    @property
    def metadata_hash(self) -> int:
        return topic_hash(self)


class MadeTopics:
    """The topics of a cluster that a test makes up."""

    def __init__(self, topics: list[MadeTopic] = [], version: int = 0, last_created_version: int = 0):  # noqa: B006
        self.by_name = {topic.name: topic for topic in topics}
        self.by_id = {topic.topic_id: topic for topic in topics}
        self.version, self.last_created_version = version, last_created_version

    def find(self, name: str) -> MadeTopic | None:
        return self.by_name.get(name)

    def find_id(self, topic_id: bytes) -> MadeTopic | None:
        return self.by_id.get(topic_id)

    def names(self) -> list[str]:
        return list(self.by_name)


class Player:
    """A group, the topics and the time of a script."""

    def __init__(self) -> None:
        self.group = ConsumerGroup(GROUP)
        self.topics = MadeTopics()
        self.settings = Settings()
        self.now_ms = 1000

    def play(self, step: dict[str, Any]) -> dict[str, Any]:
        outcome: dict[str, Any] = {"rows": []}
        try:
            getattr(self, "_" + step["op"])(step, outcome)
        except KafkaError as error:
            outcome["error"], outcome["message"] = int(error.code), error.message
        return outcome

    def _reset(self, step: dict[str, Any], outcome: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self.settings = Settings(
            **{
                name.removeprefix("group.") if name.endswith(".ms") and "refresh" not in name else name: value
                for name, value in step["settings"].items()
            }
        )

    def _topics(self, step: dict[str, Any], outcome: dict[str, Any]) -> None:
        before = self.topics
        made = [MadeTopic(topic["name"], bytes.fromhex(topic["id"]), topic["racks"]) for topic in step["topics"]]
        is_new = before.version == 0 or any(topic.topic_id not in before.by_id for topic in made)
        self.topics = MadeTopics(made, step["version"], step["version"] if is_new else before.last_created_version)
        seen = {topic.name: (topic.topic_id, topic.racks) for topic in before.by_name.values()}
        seen_now = {topic.name: (topic.topic_id, topic.racks) for topic in made}
        self.group.topics_changed([n for n in seen | seen_now if seen.get(n) != seen_now.get(n)])

    def _time(self, step: dict[str, Any], outcome: dict[str, Any]) -> None:
        while (due_ms := self.group.deadline_ms()) is not None and due_ms <= step["now"]:
            self.now_ms = max(self.now_ms, due_ms)
            self._take(self.group.expire(self.now_ms, topics=self.topics, config=self.settings), outcome)
        self.now_ms = step["now"]

    def _request(self, step: dict[str, Any], outcome: dict[str, Any]) -> None:
        if step["api"] != "ConsumerGroupHeartbeat":
            self._classic_request(step, outcome)
            return
        request = ConsumerGroupHeartbeatRequest.decode(bytes.fromhex(step["request"]), step["version"])
        if not self.group.state.exists and request.member_epoch != 0:
            raise group_not_found(GROUP, is_leaving=request.member_epoch in (-1, -2))
        rows, response = self.group.heartbeat(
            request,
            version=step["version"],
            client_id=step["client"],
            client_host="/127.0.0.1",
            now_ms=self.now_ms,
            topics=self.topics,
            config=self.settings,
            new_member_id=lambda: "made",
        )
        self._take(rows, outcome)
        outcome["response"] = response.encode(step["version"]).hex()
        if self.group.timers.patterns is not None:
            self._take(self.group.expire(self.now_ms, topics=self.topics, config=self.settings), outcome)

    def _classic_request(self, step: dict[str, Any], outcome: dict[str, Any]) -> None:
        """Serve a member of the classic protocol from the consumer group."""
        version = step["version"]
        request: Any = REQUESTS[step["api"]].decode(bytes.fromhex(step["request"]), version)
        kept: dict[str, Any] = {"now_ms": self.now_ms, "topics": self.topics}
        response: Any
        if step["api"] == "JoinGroup":
            joining = ClassicMember(
                request.member_id or "made",
                request.group_instance_id,
                client_id=step["client"],
                client_host="/127.0.0.1",
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                protocol_type=request.protocol_type,
                protocols=[(protocol.name, protocol.metadata) for protocol in request.protocols],
            )
            rows, response = classic_in_consumer.join(
                self.group, joining, has_id=request.member_id != "", needs_id_first=True, config=self.settings, **kept
            )
            self._take(rows, outcome)
        elif step["api"] == "SyncGroup":
            response = classic_in_consumer.sync(self.group, request, **kept)
        elif step["api"] == "Heartbeat":
            who = request.member_id, request.group_instance_id, request.generation_id
            error = classic_in_consumer.heartbeat(self.group, *who, self.now_ms)
            response = HeartbeatResponse(error_code=error)
        else:
            who = [(member.member_id, member.group_instance_id) for member in request.members]
            rows, errors = classic_in_consumer.leave(self.group, who, config=self.settings, **kept)
            self._take(rows, outcome)
            members = [
                LeaveGroupResponse.MemberResponse(member_id=each[0], group_instance_id=each[1], error_code=code)
                for each, code in zip(who, errors)
            ]
            response = LeaveGroupResponse(error_code=0, members=members)
        outcome["response"] = response.encode(version).hex()

    def _describe(self, step: dict[str, Any], outcome: dict[str, Any]) -> None:
        if not self.group.state.exists:
            raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {GROUP} not found.")
        found = described(self.group, self.topics, self.settings)
        response = ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[found])
        outcome["response"] = response.encode(1).hex()

    def _commit(self, step: dict[str, Any], outcome: dict[str, Any]) -> None:
        check = self.group.check_commit(step["member"], None, step["epoch"], is_transactional=False, version=9)
        for name, topic_id, partition in step["partitions"]:
            try:
                if check is not None:
                    check(name, bytes.fromhex(topic_id), partition)
                outcome["rows"].append(None)
            except KafkaError as error:
                outcome["rows"].append(error.message)

    def _take(self, rows: list[Any], outcome: dict[str, Any]) -> None:
        for row in rows:
            self.group.apply(*row)
        outcome["rows"].append([[part if part is None else part.hex() for part in encode(row)] for row in rows])


def comparable(step: dict[str, Any], outcome: dict[str, Any]) -> Any:
    """Return an outcome with everything read, and what has no order in order."""
    rows: Any = outcome["rows"]
    if step["op"] != "commit":
        rows = [sorted_patterns(sorted_deep([decode_row(row) for row in batch])) for batch in rows if batch]
    found = {"rows": rows, "error": outcome.get("error"), "message": outcome.get("message")}
    if "response" in outcome:
        data = bytes.fromhex(outcome["response"])
        if step["op"] == "describe":
            found["response"] = sorted_deep(plain(ConsumerGroupDescribeResponse.decode(data, 1)))
        else:
            found["response"] = sorted_deep(plain(RESPONSES[step["api"]].decode(data, step["version"])))
    return found


def sorted_patterns(batch: list[Any]) -> list[Any]:
    """Sort rows of regular expressions, which stand together: Kafka's follow the hash order of a set."""
    places = [place for place, row in enumerate(batch) if row[0] == "ConsumerGroupRegularExpressionKey"]
    ordered = sorted((batch[place] for place in places), key=repr)
    for place, row in zip(places, ordered):
        batch[place] = row
    return batch


def decode_row(row: list[str | None]) -> Any:
    assert row[0] is not None
    found = decode(bytes.fromhex(row[0]), None if row[1] is None else bytes.fromhex(row[1]))
    assert found is not None
    key, value = found
    return [type(key).__name__, plain(key), None if value is None else plain(value)]


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(type(value), "__fields__"):
        fields = {name: plain(getattr(value, name)) for name in type(value).__fields__}
        if fields.get("assignment_epochs"):
            pairs = sorted(zip(fields["partitions"], fields["assignment_epochs"]))
            fields["partitions"], fields["assignment_epochs"] = map(list, zip(*pairs))
        return fields
    return value


def sorted_deep(value: Any, key: str = "") -> Any:
    """Sort lists of partitions, topics and members, wherever they stand; rows stay as they are."""
    if isinstance(value, dict):
        if isinstance(value.get("assignment"), str) and value["assignment"]:
            value["assignment"] = plain(read_assignment(bytes.fromhex(value["assignment"])))
        return {name: sorted_deep(one, name) for name, one in value.items()}
    if isinstance(value, list):
        found = [sorted_deep(one) for one in value]
        if key in ORDERLESS:
            found.sort(key=repr)
        return found
    return value

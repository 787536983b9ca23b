"""Quotas are set and described as Kafka 4.4 did it: every question that it was asked, in its order.

tests/interop/golden_quotas.py made the questions and the answers.
"""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.protocol.framing import decode_response
from tests import goldens
from tests.broker.virtual_broker import virtual_broker
from tests.interop.golden_quotas import THROTTLED

pytestmark = pytest.mark.outside  # it starts a broker
THROTTLE_SLACK_MS = 2000  # between two questions to Kafka some time went by


def normal(answer: Any) -> Any:
    """Return an answer as plain values, but for what each broker decides for itself; lists without order are sorted."""
    found = answer.to_dict()
    found.pop("throttle_time_ms", None)
    entries = found.get("entries")
    for entry in entries or ():
        for name in ("values", "entity"):
            if name in entry:
                entry[name].sort(key=repr)
    if entries:
        entries.sort(key=repr)
    for topic in found.get("topics", ()):
        topic.pop("topic_id", None)
        topic.pop("configs", None)  # tests/config has those
    for name in ("topics", "responses", "results"):
        if name in found:
            found[name].sort(key=repr)
    return found


def test_questions_about_quotas_are_answered_as_kafka_answered_them() -> None:
    differences = []
    with virtual_broker() as broker:
        for row in goldens.client_quotas():
            frame = bytes.fromhex(row["request"])

            async def answered(frame: bytes = frame) -> bytes:
                found: Any = broker.node.dispatcher.answer(memoryview(frame), broker.connection)
                chunks = await found if hasattr(found, "__await__") else found
                return b"".join(chunks)[4:]

            ours = decode_response(broker.loop.run_until_complete(answered()), row["api"], row["version"])[1]
            theirs = decode_response(bytes.fromhex(row["response"]), row["api"], row["version"])[1]
            if normal(ours) != normal(theirs):
                differences.append((row["name"], normal(theirs), normal(ours)))
            slack_ms = theirs.throttle_time_ms - ours.throttle_time_ms  # type: ignore[attr-defined]
            if abs(slack_ms) > (1 if row["name"].startswith(THROTTLED) else THROTTLE_SLACK_MS):
                differences.append((row["name"], theirs.throttle_time_ms, ours.throttle_time_ms))  # type: ignore[attr-defined]
    assert not differences, "\n".join(f"{name}\n    Kafka {kafka}\n    ours  {own}" for name, kafka, own in differences)

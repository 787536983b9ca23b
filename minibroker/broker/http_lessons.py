"""Lessons by HTTP: all there are, and the one that is played on the brokers (lessons/on_page.py)."""

from __future__ import annotations

from minibroker.broker.http_calls import Refused
from minibroker.taught import titles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from minibroker.broker.broker_parts import BrokerParts
    from minibroker.broker.http_calls import Call
    from minibroker.taught import SeenLesson


def list_lessons(node: BrokerParts, call: Call) -> Any:
    return [{"name": name, "title": title} for name, title in titles().items()]


def show_lesson(node: BrokerParts, call: Call) -> Any:
    return _lesson(node).as_json()


async def take_lesson(node: BrokerParts, call: Call) -> Any:
    try:
        return await _lesson(node).do(call.body)
    except ValueError as failure:
        raise Refused("409 Conflict", str(failure)) from None


def _lesson(node: BrokerParts) -> SeenLesson:
    lesson = node.feed.source.lesson
    if lesson is None:
        raise Refused("404 Not Found", "no lesson is played here: start one with minibroker lesson NAME")
    return lesson

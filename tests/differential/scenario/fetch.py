"""Fetch: everything that was produced, in every version, with limits, mistakes and sessions."""

from __future__ import annotations

from typing import Any

from minibroker.protocol.messages.fetch import FetchRequest
from tests.differential.play import Play
from tests.differential.scenario.build import BAD_PARTITIONS, NO_ID, UNKNOWN_ID, Forgotten, fetch, fetch_topic

TOPICS = (
    *("plain", "formats", "to-gzip", "to-zstd", "to-none", "append-time", "compacted", "times"),
    *("sequences", "empty", "small"),
)


def fetch_everything(play: Play) -> None:
    """Read each topic from its start, in every version and isolation level."""
    for version in play.versions(FetchRequest):
        for topic in TOPICS:
            play.ask(f"all of {topic}", fetch(fetch_topic(topic, (0, 0), ids=play.ids)), version)
        bad = fetch_topic("bad-batches", *((index, 0) for index in range(BAD_PARTITIONS)), ids=play.ids)
        play.ask("what became of bad batches", fetch(bad), version)
        every = [fetch_topic(topic, (0, 0), ids=play.ids) for topic in ("plain", "two", "empty", "limits")]
        play.ask("several topics", fetch(*every), version)
        both = fetch_topic("two", (1, 0), (0, 0), ids=play.ids)
        play.ask("two partitions", fetch(both), version)
        play.ask("topics in turn", fetch(*_in_turn(play)), version)
        play.ask("topics in turn, some unknown", fetch(*_in_turn(play, unknown=9)), version)
        committed = fetch(fetch_topic("plain", (0, 0), ids=play.ids), isolation_level=1)
        play.ask("committed only", committed, version)
        play.ask("nothing", fetch(), version)
        play.ask("nothing, with a wait", fetch(max_wait_ms=20, min_bytes=1), version)


def fetch_by_limits(play: Play) -> None:
    """Read from inside of batches and with limits that cut."""
    for version in play.versions(FetchRequest):
        for offset in (1, 3, 5, 7):
            play.ask(f"from offset {offset}", fetch(fetch_topic("limits", (0, offset), ids=play.ids)), version)
        for limit in (0, 1, 60, 100, 151, 152, 153, 304, 400, 1000):
            one = fetch_topic("limits", (0, 0), ids=play.ids, limit_bytes=limit)
            play.ask(f"{limit} bytes of a partition", fetch(one), version)
            inside = fetch_topic("limits", (0, 4), ids=play.ids, limit_bytes=limit)
            play.ask(f"{limit} bytes from inside a batch", fetch(inside), version)
            if version >= 3:
                several = [fetch_topic(topic, (0, 0), ids=play.ids) for topic in ("limits", "plain", "trimmed")]
                play.ask(f"{limit} bytes in all", fetch(*several, max_bytes=limit), version)
        for limit in (500, 800):
            several = [fetch_topic(topic, (0, 0), ids=play.ids, limit_bytes=limit) for topic in ("limits", "plain")]
            play.ask(f"{limit} bytes of each of two", fetch(*several, max_bytes=900), version)
        play.ask("at the end", fetch(fetch_topic("empty", (0, 0), ids=play.ids)), version)
        waits = fetch(fetch_topic("empty", (0, 0), ids=play.ids), max_wait_ms=20, min_bytes=1)
        play.ask("at the end, with a wait", waits, version)
        more = fetch(fetch_topic("limits", (0, 0), ids=play.ids), max_wait_ms=20, min_bytes=1_000_000)
        play.ask("more than there is, with a wait", more, version)


def fetch_badly(play: Play) -> None:
    """Ask for what is not there."""
    for version in play.versions(FetchRequest):
        for step, topic in [
            ("past the end", fetch_topic("limits", (0, 100_000), ids=play.ids)),
            ("before the start", fetch_topic("limits", (0, -1), ids=play.ids)),
            ("offset -2", fetch_topic("limits", (0, -2), ids=play.ids)),
            ("unknown topic", fetch_topic("no-such-topic", (0, 0), ids=play.ids)),
            ("impossible topic", fetch_topic("a/b", (0, 0), ids=play.ids)),
            ("unknown partition", fetch_topic("two", (0, 0), (7, 0), ids=play.ids)),
            ("partition -1", fetch_topic("two", (-1, 0), ids=play.ids)),
            ("a partition twice", fetch_topic("two", (0, 0), (0, 1), ids=play.ids)),
            ("the epoch", fetch_topic("limits", (0, 0), ids=play.ids, epoch=0)),
            ("an epoch to come", fetch_topic("limits", (0, 0), ids=play.ids, epoch=5)),
            ("an unknown epoch of an unknown topic", fetch_topic("no-such-topic", (0, 0), ids=play.ids, epoch=5)),
            ("last epoch 0", fetch_topic("limits", (0, 3), ids=play.ids, last_fetched_epoch=0)),
            ("last epoch 0, past the end", fetch_topic("limits", (0, 9999), ids=play.ids, last_fetched_epoch=0)),
            ("last epoch 4", fetch_topic("limits", (0, 3), ids=play.ids, last_fetched_epoch=4)),
            ("negative limit", fetch_topic("limits", (0, 0), ids=play.ids, limit_bytes=-1)),
        ]:
            play.ask(f"fetch: {step}", fetch(topic), version)
            play.ask(f"fetch: {step}, with a wait", fetch(topic, max_wait_ms=20, min_bytes=1), version)
        if version >= 13:
            for step, topic_id in [("zero", NO_ID), ("unknown", UNKNOWN_ID)]:
                by_id = [
                    fetch_topic("two", (0, 0), ids=play.ids, topic_id=topic_id),
                    fetch_topic("plain", (0, 0), ids=play.ids),
                ]
                play.ask(f"fetch: {step} id", fetch(*by_id), version)
        if version >= 4:
            level = fetch(fetch_topic("limits", (0, 0), ids=play.ids), isolation_level=2)
            play.ask("fetch: isolation level 2", level, version)


def fetch_in_sessions(play: Play) -> None:
    """Open a session, ask for more and less in it, break its rules, leave it."""
    for version in play.versions(FetchRequest, 7):

        def ask(
            step: str, session: int, epoch: int, *partitions: tuple[int, int], version: int = version, **more: Any
        ) -> Any:
            topics = [fetch_topic("sessions", *partitions, ids=play.ids)] if partitions else []
            return play.ask(
                f"session: {step}", fetch(*topics, session_id=session, session_epoch=epoch, **more), version
            )

        def forget(*partitions: int) -> list[Forgotten]:
            return [Forgotten(topic="sessions", topic_id=play.ids["sessions"], partitions=list(partitions))]

        first = ask("opens", 0, 0, (0, 0), (1, 0))
        if first is None or not first.session_id:
            continue
        own = first.session_id
        ask("nothing changed", own, 1)
        ask("moves on", own, 2, (0, 100), (1, 1))
        ask("moves to the end", own, 3, (0, _end(first, 0)), (1, _end(first, 1)))
        ask("nothing new", own, 4)
        ask("adds a partition", own, 5, (2, 0))
        ask("the third is at the end", own, 6, (2, 1_000_000))
        ask("an unknown partition", own, 7, (9, 0))
        ask("still unknown", own, 8)
        ask("forgets", own, 9, forgotten=forget(0, 9))
        ask("forgets what it did not know", own, 10, forgotten=forget(5))
        ask("a wrong epoch", own, 50)
        ask("an unknown session", own ^ 0x55AA55, 11)
        ask("goes on", own, 11, (1, 0))
        ask("as full, epoch 0", own, 0, (1, 0))
        ask("as it was, closed by that", own, 12)
        second = ask("opens again", 0, 0, (1, 0))
        if second is not None and second.session_id:
            other = 12 if version >= 13 else 13
            if other in play.versions(FetchRequest, 7):
                crossed = fetch(session_id=second.session_id, session_epoch=1)
                play.ask(f"session: continued in version {other}", crossed, other)
            ask("closes", second.session_id, -1, (1, 0))
            ask("after the end", second.session_id, 1)
        third = ask("opens with what is unknown", 0, 0, (0, 0), (8, 0))
        if third is not None and third.session_id:
            ask("forgets all", third.session_id, 1, forgotten=forget(0, 8))
            ask("after all was forgotten", third.session_id, 2)
        ask("opens with nothing", 0, 0)
        ask("epoch 5 without a session", 0, 5, (0, 0))


def fetch_in_turn(play: Play) -> None:
    """Read several topics in a session with a limit on the whole answer, from the same offsets again and again."""
    for version in play.versions(FetchRequest, 7):
        for limit in (1, 400, 1_000_000):
            for unknown in (None, 9):
                opened = play.ask(
                    f"in turn: opens, {limit} bytes", fetch(*_in_turn(play, unknown), max_bytes=limit), version
                )
                for epoch in range(1, 8):
                    more = [fetch_topic("two", (0, 0), ids=play.ids)] if epoch == 5 else []
                    again = fetch(*more, session_id=opened.session_id, session_epoch=epoch, max_bytes=limit)
                    play.ask(f"in turn: {epoch}, {limit} bytes", again, version)


def _in_turn(play: Play, unknown: int | None = None) -> list[FetchRequest.FetchTopic]:
    """Return partitions of topics that stand more than once in the request, perhaps with one that there is not."""
    rows = [("two", 1), ("plain", 0), ("two", 0), ("limits", 0), ("empty", 0), ("small", 0)]
    if unknown is not None:
        rows.insert(1, ("two", unknown))
    return [fetch_topic(topic, (partition, 0), ids=play.ids) for topic, partition in rows]


def _end(answer: Any, partition: int) -> int:
    parts = [part for topic in answer.responses for part in topic.partitions if part.partition_index == partition]
    return max((part.high_watermark for part in parts), default=0)

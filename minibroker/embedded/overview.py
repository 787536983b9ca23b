"""What there is on a broker or a cluster, as text: shown when a test has failed.

orders: 2 partitions, 3 records
  [0] 0..2  [1] 0..1
  [0] 1  key a  {"id": 1}
group billing: Stable, 1 member, lag 2
  orders-0: committed 1 of 3
"""

from __future__ import annotations

from inspect import isawaitable

from minibroker.embedded.expectations import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

    from minibroker.groups.view_rows import GroupView

TOPICS_MAX, GROUPS_MAX, PLACES_MAX = 20, 10, 8  # that are shown
LAST = 3  # records of a topic


class Overview:
    """A look at all of it."""

    def __init__(self, topics: Any, groups: Any):
        """topics: has `topics`, `ends` and `last_records`; groups: has `groups` and `group`; awaited or not."""
        self._of_topics, self._of_groups = topics, groups

    async def overview(self) -> str:
        """Return, as text, the topics with their ends and last records, and the groups with their lag."""
        lines = [line async for line in _topics(self._of_topics)]
        return "\n".join([*lines, *[line async for line in _groups(self._of_groups)]])


async def _topics(of: Any) -> AsyncIterator[str]:
    found = {name: count for name, count in (await _had(of.topics())).items() if not name.startswith("__")}
    if not found:
        yield "no topic"
    for name, partitions in list(found.items())[:TOPICS_MAX]:
        ends = await _had(of.ends(name))
        records = sum(end - begin for begin, end in ends.values())
        yield f"{name}: {_counted(partitions, 'partition')}, {_counted(records, 'offset')}"
        full = [f"[{index}] {begin}..{end}" for index, (begin, end) in sorted(ends.items()) if end > begin]
        if partitions > 1 and full:
            yield f"  {'  '.join(full[:PLACES_MAX])}{_more(len(full) - PLACES_MAX)}"
        if records:
            last = sorted(await _had(of.last_records(name, LAST)), key=lambda record: record.timestamp)
            for record in last[-LAST:]:
                yield f"  {shown(record)}"
    if len(found) > TOPICS_MAX:
        yield f"and {len(found) - TOPICS_MAX} more topics"


async def _groups(of: Any) -> AsyncIterator[str]:
    found = await _had(of.groups())
    for row in found[:GROUPS_MAX]:
        view: GroupView = await _had(of.group(row.group))
        lag = sum(each.lag_to_hw or 0 for each in view.partitions)
        yield f"group {view.group}: {view.state}, {_counted(len(view.members), 'member')}, lag {lag}"
        for each in view.partitions[:PLACES_MAX]:
            committed = "nothing is committed" if each.committed is None else f"committed {each.committed}"
            yield f"  {each.topic}-{each.partition}: {committed} of {each.high_watermark}"
        if len(view.partitions) > PLACES_MAX:
            yield f"{_more(len(view.partitions) - PLACES_MAX)} partitions"
    if len(found) > GROUPS_MAX:
        yield f"and {len(found) - GROUPS_MAX} more groups"


async def _had(result: Any) -> Any:
    return await result if isawaitable(result) else result


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _more(count: int) -> str:
    return f"  and {count} more" if count > 0 else ""

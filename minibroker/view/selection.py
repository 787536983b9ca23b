"""What a viewer wants to see of a state, as the query of an address says it.

    ?parts=orders-0,orders-1     rows and logs of these partitions
    ?topics=orders,clicks        of all partitions of these topics
    ?groups=readers&groups=b     members, positions and lag of these groups; a name for each, for they may have commas
    ?contents=1                  records of short logs as text, and where transactions end
    ?sums=1                      offsets and bytes of each topic, once a second
    ?clients=1                   who is connected, and what it reads from where, once a second

Of who names no partition all are shown but those of internal topics, if they are PARTS_MAX at most, and of who names
no group all, if they are GROUPS_MAX at most; what is left out is counted.
"""

from __future__ import annotations

from minibroker.event_kinds import is_internal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from minibroker.metadata.image import MetadataImage

PARTS_MAX = 64
GROUPS_MAX = 8
ALL = "all"


class BadQuery(ValueError):
    """A query that is none; the text says what would be."""


class Selection:
    """What is wanted beyond the tables that everybody gets."""

    __slots__ = ("clients", "contents", "groups", "is_all", "parts", "since", "sums", "topics")

    def __init__(
        self,
        parts: tuple[tuple[str, int], ...] = (),
        topics: tuple[str, ...] = (),
        groups: tuple[str, ...] = (),
        *,
        is_all: bool = False,
        sums: bool = False,
        clients: bool = False,
        contents: bool = False,
        since: str = "",
    ):
        self.parts = parts
        self.topics = topics
        self.groups = groups
        self.is_all = is_all  # every partition, however many there are
        self.sums = sums
        self.clients = clients
        self.contents = contents
        self.since = since  # the last frame that is there already: boot.seq

    def places(self, image: MetadataImage) -> tuple[list[tuple[str, int]], int]:
        """Return the partitions that are wanted and exist, and how many are left out."""
        if self.is_all:
            return list(_places(image)), 0
        if not self.parts and not self.topics:
            count = sum(len(topic.partitions) for topic in image.topics.values() if not is_internal(topic.name))
            if count > PARTS_MAX:
                return [], count
            return [place for place in _places(image) if not is_internal(place[0])], 0
        found = {(topic, number): None for topic, number in self.parts if _is_there(image, topic, number)}
        for name in self.topics:
            if (topic := image.topics.get(name)) is not None:
                found |= dict.fromkeys((name, partition.id) for partition in topic.partitions)
        return list(found)[:PARTS_MAX], max(len(found) - PARTS_MAX, 0)

    def group_ids(self, known: Mapping[str, object]) -> tuple[list[str], int]:
        """Return the groups that are wanted and exist, and how many are left out."""
        if self.groups:
            return [group for group in self.groups if group in known], 0
        return ([], len(known)) if len(known) > GROUPS_MAX else (list(known), 0)


def _places(image: MetadataImage) -> Iterator[tuple[str, int]]:
    return ((topic.name, partition.id) for topic in image.topics.values() for partition in topic.partitions)


def _is_there(image: MetadataImage, topic: str, number: int) -> bool:
    found = image.topics.get(topic)
    return found is not None and number < len(found.partitions)


def parse_query(query: str, *, may_be_all: bool) -> Selection:
    """Read a query. may_be_all: parts=all is taken, however many there are."""
    from urllib.parse import parse_qsl

    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=100)
    except ValueError:
        raise BadQuery("a query is name=value&name=value") from None
    selection = Selection()
    for name, value in pairs:
        if name == "parts" and value == ALL and may_be_all:
            selection.is_all = True
        elif name == "parts":
            selection.parts += tuple(_place(text) for text in value.split(","))
        elif name == "topics":
            selection.topics += tuple(value.split(","))
        elif name == "groups":
            selection.groups += (value,)
        elif name == "since" and not may_be_all:
            selection.since = value
        elif name in ("sums", "clients", "contents") and value in ("0", "1"):
            setattr(selection, name, value == "1")
        else:
            known = "parts, topics, groups, contents=1, sums=1 and clients=1" + ("" if may_be_all else ", and since")
            raise BadQuery(f"there is no {name}={value[:50]}: a query has {known}")
    if len(selection.parts) > PARTS_MAX or len(selection.topics) > PARTS_MAX or len(selection.groups) > GROUPS_MAX:
        raise BadQuery(f"up to {PARTS_MAX} partitions, as many topics and {GROUPS_MAX} groups can be named")
    return selection


def _place(text: str) -> tuple[str, int]:
    topic, _, number = text.rpartition("-")
    if not topic or not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise BadQuery(f"a partition is named as orders-0 is, and not {text[:50]!r}")
    return topic, int(number)

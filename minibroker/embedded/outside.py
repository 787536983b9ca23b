"""An outside broker that is lent to a test: it begins as it was found, and is left so.

What must hold: nothing goes that was there before. A topic that a test is to find empty must not be there.
"""

from __future__ import annotations

from contextlib import contextmanager

from minibroker.embedded.arguments import wanted_topics
from minibroker.embedded.broker import Broker
from minibroker.errors import Error, KafkaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from minibroker.embedded.attached import Attached

INTERNAL = "__"
SECURITY = ("security.protocol", "ssl.", "sasl.")  # what counts of a client's file


@contextmanager
def lent(bootstrap: str, file: str, topics: str | Iterable[str]) -> Iterator[Attached]:
    """Attach to a broker, make topics, and take back at the end whatever topics and groups have come."""
    with Broker.attach(bootstrap, _settings(file)) as broker:
        found, groups = {*broker.topics()}, {row.group for row in broker.groups()}
        wanted = wanted_topics(topics, None)
        if there := sorted(topic.name for topic in wanted if topic.name in found):
            words = "is there already, and its records would count" if len(there) == 1 else "are there already"
            raise ValueError(f"{', '.join(there)} {words}: delete it at {bootstrap}, or call it otherwise")
        for topic in wanted:
            configs = {name.replace(".", "_"): value for name, value in topic.configs.items()}
            broker.create_topic(topic.name, topic.partitions if topic.partitions > 0 else None, **configs)
        try:
            yield broker
        finally:
            _take_back(broker, found, groups)


def _take_back(broker: Attached, topics: set[str], groups: set[str]) -> None:
    for row in broker.groups():
        if row.group not in groups:
            try:
                broker.delete_group(row.group)
            except KafkaError as failure:  # somebody has not left it yet
                if failure.code not in (Error.NON_EMPTY_GROUP, Error.GROUP_ID_NOT_FOUND):
                    raise
    for name in broker.topics():
        if name not in topics and not name.startswith(INTERNAL):
            broker.delete_topic(name)


def _settings(file: str) -> dict[str, str]:
    if not file:
        return {}
    from minibroker.log.meta_properties import parse_properties
    from minibroker.security.named_files import read_file

    found = parse_properties(read_file(file), file)
    return {name: text for name, (_, text) in found.items() if name.startswith(SECURITY)}

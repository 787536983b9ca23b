"""How many elements a request may have: by its bytes, and by what its API may have at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minibroker.broker.apis import SERVED
from minibroker.errors import InvalidLength
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.registry import APIS, request_class
from minibroker.schema.bounds import BYTES_PER_ELEMENT, ELEMENTS_FREE, ELEMENTS_MAX
from minibroker.schema.plan import message_plan
from tests.server.amplified import Path, arrays, body, versions_of

WORDS = r"more than {} elements in "


def topics(count: int, name: str) -> bytes:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for _ in range(count)]).encode(1)


def largest(name: str) -> int:
    """Return how many topics of such names a request may have: each is an element, and takes two bytes and its name."""
    count = 0
    while count + 1 <= min(ELEMENTS_FREE + (4 + (count + 1) * (2 + len(name))) // BYTES_PER_ELEMENT, ELEMENTS_MAX):
        count += 1
    return count


@pytest.mark.parametrize(("name", "wanted"), [("", 2_002), ("a", 4_004), ("ab", 50_000), ("abcdef", 50_000)])
def test_there_is_one_for_each_four_bytes_a_thousand_are_free_and_fifty_thousand_are_enough(
    name: str, wanted: int
) -> None:
    count = largest(name)
    assert count == wanted
    assert len(MetadataRequest.decode(topics(count, name), 1).topics) == count
    with pytest.raises(InvalidLength, match=WORDS.format(count)):
        MetadataRequest.decode(topics(count + 1, name), 1)


def every_array() -> Iterator[tuple[int, int, Path]]:
    for api in sorted(SERVED):
        version = versions_of(api)[-1]
        for path in arrays(message_plan(request_class(api), version)):
            yield api, version, path


@pytest.mark.outside
@pytest.mark.parametrize(
    ("api", "version", "path"),
    [pytest.param(*each, id=f"{APIS[each[0]]}-{'.'.join(each[2])}") for each in every_array()],
)
def test_no_array_of_an_api_has_more_than_the_api_may_have(api: int, version: int, path: Path) -> None:
    """As many as a megabyte holds are more than that, if they take twenty bytes each or less."""
    cls = request_class(api)
    data = body(api, version, path, "same", 1 << 20)
    with pytest.raises(InvalidLength, match=WORDS.format(cls.elements_max)):
        cls.decode(data, version)

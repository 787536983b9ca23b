"""Refusals of APIs that nobody uses here: of the most elements that a request may have, with others in between."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.apis import SERVED
from minibroker.broker.dispatch import Context
from minibroker.broker.handlers.not_in_use import FAULTS, refuse
from minibroker.errors import InvalidLength
from minibroker.in_pieces import finish
from minibroker.protocol.headers import Response
from minibroker.protocol.registry import APIS, request_class
from minibroker.schema.plan import message_plan
from tests.broker.stretches import counted
from tests.server.amplified import KINDS, arrays, body
from tests.server.running import FedTransport, running

SIZE_BYTES = 128 * 1024
LINES_MAX = 20_000  # at a stretch: 2 ms of those that do little
LINES_FREE, LINES_PER_ELEMENT_MAX = 1_000, 50


def count_of(owner: Any, field: str, *fields: str) -> int:
    """Return how many elements are in arrays of a request, all together."""
    value = getattr(owner, field)
    if not fields:
        return len(value or ())
    return sum(count_of(each, *fields) for each in (value if isinstance(value, list) else [value]))


def test_all_of_them_have_a_fault() -> None:
    assert set(FAULTS) == {api for api, (_, _, handler) in SERVED.items() if handler == "not_in_use.refuse"}


@pytest.mark.parametrize("api", FAULTS, ids=APIS.get)
async def test_as_many_elements_as_there_can_be_do_not_hold_the_loop(api: int) -> None:
    version = SERVED[api][1]
    cls = request_class(api)
    async with running() as node:
        context = Context(node, FedTransport(node).connection, version, "client")
        for path in arrays(message_plan(cls, version)):
            for kind in KINDS:
                size_bytes = SIZE_BYTES
                while True:
                    try:
                        request, _ = cls.decode_from(body(api, version, path, kind, size_bytes), 0, version)
                        break
                    except InvalidLength:  # these are more elements than a request may have
                        size_bytes //= 2
                finish(refuse(request, context))  # functions are made with the first of its kind
                answer, count = counted(lambda request=request: refuse(request, context))  # type: ignore[misc]
                assert isinstance(answer, Response)
                assert count.longest_lines <= LINES_MAX, (path, kind, vars(count))
                lines_max = LINES_FREE + LINES_PER_ELEMENT_MAX * count_of(request, *path)
                assert count.all_lines <= lines_max, (path, kind, vars(count))

"""What a page promises about how much there is to read: counted, not believed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import CodeType, FrameType

import pytest

from minibroker import Broker
from minibroker.client import Cluster, Producer

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "minibroker"
NOT_THE_BROKER = ("client/", "schema/", "protocol/", "embedded/")  # who sends, the language of formats, the formats


async def produced() -> set[CodeType]:
    """Return the functions that a Produce runs through, once everything has been loaded and compiled."""
    found: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            found.add(frame.f_code)

    async with (
        Broker(topics="orders") as broker,
        Cluster(broker.bootstrap_servers) as cluster,
        Producer(cluster) as producer,
    ):
        await producer.send("orders", b"first")
        await producer.send("orders", b"second")
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            await producer.send("orders", b"third")
        finally:
            sys.setprofile(before)
    return found


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
async def test_a_produce_goes_through_as_many_files_and_lines_as_is_said(page: str) -> None:
    lines: dict[str, set[int]] = {}
    for code in await produced():
        name = Path(code.co_filename).relative_to(PACKAGE).as_posix()
        if not name.startswith(NOT_THE_BROKER):
            last = max(line for _, _, line in code.co_lines() if line)
            lines.setdefault(name, set()).update(range(code.co_firstlineno, last + 1))
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    match = re.search(r"a Produce goes through (\d+) files and ([\d,]+) lines", text)
    assert match is not None
    files, count = int(match[1]), int(match[2].replace(",", ""))
    assert abs(len(lines) - files) <= 5, f"{len(lines)} files: {sorted(lines)}"
    assert abs(sum(map(len, lines.values())) - count) <= 300, f"{sum(map(len, lines.values()))} lines"

"""The golden messages are what the program beside them makes with Kafka's classes: so the next version can be made."""

from __future__ import annotations

import gzip
from copy import deepcopy

import pytest

from tests import goldens
from tests.interop import golden_messages

SINCE_44 = ("DeleteGroupsResponse", "ApiVersionsRequest")


@pytest.mark.parametrize("kind", ["requests", "responses"])
def test_kafkas_classes_write_the_same_bytes_again(kind: str) -> None:
    golden = gzip.decompress((goldens.GOLDEN / f"wire/{kind}.jsonl.gz").read_bytes()).decode()
    assert golden_messages.messages(kind) == golden.splitlines()


def test_what_the_newest_release_has_added_comes_into_the_schemas() -> None:
    known = [*goldens.schema().values()]
    older = deepcopy(goldens.schema())
    for name in SINCE_44:
        older[name]["validVersions"] = older[name]["releases"]["4.3"]
        del older[name]["releases"]["4.4"]
        _cut(older[name]["fields"], int(older[name]["validVersions"].partition("-")[2]))
    assert [*older.values()] != known
    assert golden_messages.schemas([*older.values()]) == known


def _cut(fields: list[dict[str, object]], last: int) -> None:
    """Take away what is only in versions after the last."""
    fields[:] = [each for each in fields if int(str(each["versions"]).split("-")[0].rstrip("+")) <= last]
    for each in fields:
        _cut(each.get("fields", []), last)  # type: ignore[arg-type]

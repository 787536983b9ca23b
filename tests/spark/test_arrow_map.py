"""Arrays reach functions over batches of Arrow as they are, and as empty ones where they are null."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.spark.session import Session

pytestmark = pytest.mark.interop


def test_functions_get_no_array_that_is_null(spark: Session) -> None:
    found = spark.call("tests.spark.arrays:texts")
    assert found == ["{'id': 0, 'headers': []}", "{'id': 1, 'headers': [{'key': 'a', 'value': b'1'}]}"]


def test_rows_without_arrays_stay_as_they_are(spark: Session) -> None:
    assert spark.call("tests.spark.arrays:keeps_others")

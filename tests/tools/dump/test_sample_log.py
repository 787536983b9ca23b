"""docs/sample-log has the numbers that articles about the formats print, and is what its maker makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.sample_log import WRAPPER, sample_files
from minibroker.cli import main
from minibroker.log.batches import batches

SAMPLE = Path(__file__).parents[3] / "docs/sample-log"
FIRST = f"{0:020}.log"
# Of each request: positions and sizes as they are in the file. v0 and v1 have a message for each of the ten.
SIZES = {
    0: [34, 31, 320],
    1: [42, 39, 400],
    2: [76, 73, 191],
}


@pytest.mark.parametrize("path", sample_files())
def test_files_are_as_they_are_made(path: str) -> None:
    committed, made = (SAMPLE / path).read_bytes(), sample_files()[path]
    if path == WRAPPER:
        (ours,), (theirs,) = batches(made), batches(committed)
        assert list(ours.records()) == list(theirs.records())
    else:
        assert committed == made, "run `python -m docs.generate`"


@pytest.mark.parametrize("magic", SIZES)
def test_sizes_are_those_of_the_articles(magic: int) -> None:
    found = list(batches((SAMPLE / f"v{magic}-0" / FIRST).read_bytes(), strict=True))
    first, second, *rest = [batch.size_bytes for batch in found]
    assert [first, second, sum(rest)] == SIZES[magic]
    assert len(rest) == (1 if magic == 2 else 10)
    assert found[-1].last_offset == 11
    assert all(batch.crc_is_valid() for batch in found)


def test_the_checksum_and_the_position_that_articles_print(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", "--release", "0.8.2", str(SAMPLE / "v0-0" / FIRST)]) == 0
    assert "crc: 592888119 keysize: 3" in capsys.readouterr().out
    assert main(["dump", "--release", "1.0", str(SAMPLE / "v2-0" / FIRST)]) == 0
    assert "position: 149 CreateTime: 1524709879130 isvalid: true size: 191" in capsys.readouterr().out


def test_the_wrapper_bears_the_last_offset_and_what_is_in_it_counts_from_0() -> None:
    (batch,) = batches((SAMPLE / WRAPPER).read_bytes(), strict=True)
    assert batch.last_offset == 1030
    assert [record.offset for record in batch.records()] == list(range(1025, 1031))

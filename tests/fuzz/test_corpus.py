"""Every input of the fuzzers' corpus, without the fuzzer: what was once found stays mended."""

from __future__ import annotations

import hashlib
import tracemalloc

import pytest

from tests.fuzz.bounds import bounded
from tests.fuzz.make_corpus import CORPUS, NAME_LETTERS, TARGETS

CORPUS_BYTES_MAX = 200_000
PYTHON_BYTES_MAX = 16 * 1024 * 1024  # the limit of what may be unpacked, a few times over


@pytest.mark.parametrize("name", TARGETS)
def test_every_input_of_the_corpus_passes_within_its_bounds(name: str) -> None:
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    for file in inputs:
        try:
            bounded(TARGETS[name].check, file.read_bytes())
        except Exception as error:
            error.add_note(f"tests/fuzz/corpus/{name}/{file.name}")
            raise


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_of_the_corpus_needs_much_memory(name: str) -> None:
    for file in sorted((CORPUS / name).iterdir()):
        data = file.read_bytes()
        TARGETS[name].check(data)  # codecs and modules that this is the first to use are not its fault
        tracemalloc.start()
        try:
            TARGETS[name].check(data)
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak_bytes < PYTHON_BYTES_MAX, f"tests/fuzz/corpus/{name}/{file.name}: {peak_bytes}"


@pytest.mark.parametrize("name", TARGETS)
def test_all_seeds_are_in_the_corpus(name: str) -> None:
    missing = [seed for seed in TARGETS[name].seeds() if not (CORPUS / name / short_name(seed)).exists()]
    assert not missing, "run python -m tests.fuzz.make_corpus"


def test_corpus_is_small_and_named_after_its_contents() -> None:
    files = [file for name in TARGETS for file in (CORPUS / name).iterdir()]
    assert sum(file.stat().st_size for file in files) < CORPUS_BYTES_MAX
    assert not [file for file in files if file.name != short_name(file.read_bytes())]


def short_name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:NAME_LETTERS]

"""The same requests to a real Kafka and to us: every field of every answer agrees, but for what rules.py lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.compare import compare, summary
from tests.differential.kafka import SETTINGS, Kafka, missing_tools
from tests.differential.ours import ours, tracebacks
from tests.differential.play import describe

VERSIONS = {"3.9.2": "3.9", "4.4.0": "4.4"}  # the last 3.x and the newest in Maven Central -> what we are to be like
REQUESTS_MIN = 16_000
APIS_EXPECTED = {
    *(0, 1, 2, 3, 18, 19, 20, 21, 22, 23, 32, 33, 35, 37, 43, 44, 60, 61, 75),
    *(17, 29, 30, 31, 36, 38, 39, 40, 41, 50, 51),  # security, of which there is none
    *(24, 25, 26, 27, 28, 65, 66),  # transactions
    48,  # quotas, of which there are none
    *(34, 55, 57, 64, 74, 80, 81),  # one directory, one controller
    *(8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47, 68, 69),  # groups
}

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_tools()), reason=f"a real Kafka needs {missing_tools()}, not found"),
]


@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_and_we_answer_alike(version: str, tmp_path: Path) -> None:
    like = ("--memory", "--as-version", VERSIONS[version])
    with Kafka(version, tmp_path / "kafka") as kafka, ours(tmp_path / "ours.txt", *like, settings=SETTINGS) as address:
        play = compare(kafka.address, address)
    assert not play.differences, f"{summary(play)}\n{describe(play.differences, ('Kafka', 'ours'))}"
    assert not tracebacks(tmp_path / "ours.txt")
    assert sum(play.asked.values()) >= REQUESTS_MIN
    for api in APIS_EXPECTED:
        never = set(play.common.get(api, range(1))) - {version for asked, version in play.asked if asked == api}
        assert not never, f"API {api}: versions {never} are served by both, or should be, and were never asked"

"""serve --record, replay and proxy, as they are typed."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import MINIBROKER, broker_running

pytestmark = pytest.mark.slow


def typed(*words: str, stdin: str = "") -> tuple[int, str, str]:
    done = subprocess.run([*MINIBROKER, *words], input=stdin, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def produce(address: str) -> None:
    assert typed("produce", "-b", address, "-t", "orders", stdin="one\n")[0] == 0


def test_what_is_recorded_is_listed_and_replayed(tmp_path: Path) -> None:
    path = str(tmp_path / "traffic.rec")
    with broker_running("--topic", "orders", "--record", path) as address:
        produce(address)
    status, listed, errors = typed("replay", path, "--list")
    assert (status, errors) == (0, "")
    assert re.search(r"^#1 \d\d:\d\d:\d\d\.\d{3} .*  Produce v\d+ orders-0 1 record, \d+ B -> offset 0, ", listed, re.M)
    with broker_running("--topic", "orders") as other:
        status, shown, errors = typed("replay", path, "--against", other)
        assert (status, errors) == (0, ""), shown
        assert re.search(r"\d+ answers alike, 0 differ, 0 requests not sent; \d+ fields differ by nature", shown)
        status, shown, _ = typed("replay", path, "--against", other)  # now there is a record already
        assert status == 1
        assert "base_offset: 0 was recorded, 1 now" in shown
    with open(path, "ab") as file:
        file.write(b"torn")
    assert typed("replay", path, "--list")[2].endswith("4 bytes behind the last whole frame are passed over\n")
    assert typed("replay", __file__, "--list")[0] == 2


def test_the_proxy_says_what_passes(tmp_path: Path) -> None:
    path = str(tmp_path / "traffic.rec")
    with broker_running("--topic", "orders") as address:
        words = ["proxy", "--listen", "127.0.0.1:0", "--upstream", address, "--record", path, "-v"]
        with subprocess.Popen([*MINIBROKER, *words], stdout=subprocess.PIPE, text=True) as proxy:
            assert proxy.stdout
            produce(proxy.stdout.readline().strip())
            proxy.send_signal(signal.SIGTERM)
            told = proxy.stdout.read()
        assert proxy.returncode == 0
    assert "orders-0 1 record" in told
    assert "orders-0 1 record" in typed("replay", path, "--list")[1]
    assert typed("proxy", "--upstream", "a:1,b:2")[0] == 1

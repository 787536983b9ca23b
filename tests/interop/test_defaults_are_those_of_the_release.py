"""Defaults of a broker that is to look like a release, beside those of the release's own classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.broker.emulated_release import EmulatedRelease
from minibroker.broker.releases import release_named
from minibroker.config import BrokerConfig
from minibroker.config.setting import HONOURED
from minibroker.config.tables import broker_settings
from minibroker.config.values import parse_text
from tests.config.test_tables import OUR_DEFAULTS
from tests.interop.kafka import HERE, Release, run

pytestmark = [pytest.mark.interop, pytest.mark.slow]

RELEASES = {  # and the version of Scala that it is there for
    version: scala
    for scala, versions in {
        "2.10": ("0.8.2.2",),
        "2.11": ("0.9.0.1", "0.10.0.1", "0.10.1.1", "0.10.2.2", "0.11.0.3", "1.0.2", "1.1.1"),
        "2.12": ("2.0.1", "2.1.1", "2.2.2", "2.3.1", "2.4.1"),
        "2.13": ("2.5.1", "2.6.3", "2.7.2", "2.8.2", "3.0.2", "3.3.2", "3.9.2", "4.0.1", "4.1.1", "4.3.1", "4.4.0"),
    }.items()
    for version in versions
}
# Where the same is written in another way, or the words are those of KRaft, which we always have.
WRITTEN_OTHERWISE = {
    *("group.consumer.assignors", "listener.security.protocol.map", "log.message.format.version", "log.dir"),
    *("controller.quorum.voters", "controller.quorum.bootstrap.servers", "security.inter.broker.protocol"),
    *("max.connections.per.ip.overrides", "advertised.listeners", "log.cleaner.dedupe.buffer.size", "broker.id"),
    *("ssl.cipher.suites", "sasl.oauthbearer.expected.audience"),  # null was no list, and is an empty one now
    *("ssl.enabled.protocols", "ssl.protocol"),  # nobody is served TLS 1.1, whatever the release
}


@pytest.mark.parametrize("version", RELEASES)
def test_defaults_are_those_of_the_release(version: str, tmp_path: Path) -> None:
    printed = run(Release(f"kafka_{RELEASES[version]}", version), str(HERE / "Defaults.java"), cwd=tmp_path)
    theirs = dict(line.split("=", 1) for line in printed.stdout.splitlines() if "=" in line)
    assert len(theirs) > 5, printed.stderr
    emulated = EmulatedRelease(release_named(version))
    config = BrokerConfig()
    config.appear_as(emulated.settings_release, emulated.defaults_release)
    different = {}
    for name, setting in broker_settings().items():
        if setting.treatment != HONOURED or name not in theirs or name in {*OUR_DEFAULTS, *WRITTEN_OTHERWISE}:
            continue
        text = theirs[name].strip("[]").replace(", ", ",")
        default = None if text == "null" else parse_text(setting, text)
        if config[name] != default:
            different[name] = (config[name], default)
    assert not different

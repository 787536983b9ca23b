"""Java is found where it usually is, or its absence is said in one message; no Spark is needed for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.spark import java
from minibroker.spark.java import JavaMissing, advice, use_java, version_of


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Take away the Java of the machine that tests run on."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "USUAL_PLACES", (f"{tmp_path}/jvm/*",))


def make_java(home: Path, says: str, status: int = 0) -> str:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {status}\n")
    program.chmod(0o755)
    return str(home)


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.9" 2023-10-17', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ("Unable to locate a Java Runtime.", None),
    ],
)
def test_a_version_is_read(tmp_path: Path, says: str, version: int | None) -> None:
    assert version_of(make_java(tmp_path / "java", says)) == version


def test_no_program_has_no_version(tmp_path: Path) -> None:
    assert version_of(str(tmp_path)) is None


def test_java_home_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = make_java(tmp_path / "told", 'openjdk version "17.0.9"')
    make_java(tmp_path / "jvm" / "java-21", 'openjdk version "21"')
    monkeypatch.setenv("JAVA_HOME", told)
    assert use_java() == told


def test_one_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", make_java(tmp_path / "old", 'java version "1.8.0_392"'))
    newer = make_java(tmp_path / "jvm" / "java-21", 'openjdk version "21"')
    assert use_java() == newer
    import os

    assert os.environ["JAVA_HOME"] == newer  # Spark's own scripts look there


def test_without_java_one_message_says_what_helps() -> None:
    with pytest.raises(JavaMissing) as caught:
        use_java()
    told = str(caught.value)
    assert "Java 17 or newer" in told
    assert "JAVA_HOME" in told
    assert told.endswith(advice())


def test_what_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = make_java(tmp_path / "old", 'java version "1.8.0_392"')
    monkeypatch.setenv("JAVA_HOME", old)
    with pytest.raises(JavaMissing, match=f"{old} is 8"):
        use_java()


def test_advice_fits_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "adoptium" in advice()
    tool = tmp_path / "bin" / "dnf"
    tool.parent.mkdir()
    tool.write_text("")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    assert advice() == "sudo dnf install java-17-openjdk-headless"

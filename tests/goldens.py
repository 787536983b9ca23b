"""Reads tests/golden: what real Kafka wrote. Every file is parsed once per run; nobody may change what is returned."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"
LOG_DIRECTORIES = (  # tests/golden/README.md says what is in each
    "kraft39-1-before-clean",
    "kraft39-2-after-clean",
    "kraft39-3-killed",
    "kraft44-1",
    "zk28-1-before-clean",
    "zk28-2-after-clean",
)


@cache
def schema() -> dict[str, dict[str, Any]]:
    """Return every message by name, as Kafka's schema files declare it."""
    return {message["name"]: message for message in _lines("messages")}


@cache
def wire(kind: str) -> list[dict[str, Any]]:
    """Return the serialised messages of a kind: "requests", "responses" or "records"."""
    return _lines(f"wire/{kind}")


@cache
def records(name: str) -> list[dict[str, Any]]:
    """Return the record cases of "records", "compact", "downconvert", "validate" or "refuse"."""
    return _lines(f"records/{name}")


@cache
def table(name: str) -> dict[str, Any]:
    """Return "apis", "configs", "enums", "errors" or "hashes"."""
    loaded: dict[str, Any] = json.loads(_text(f"{name}.json"))
    return loaded


@cache
def sasl_answers() -> dict[str, list[Any]]:
    """Return what Kafka answered to each conversation of tests/security/conversations.py."""
    loaded: dict[str, list[Any]] = json.loads(_text("sasl-answers.json"))
    return loaded


@cache
def sessions(release: str) -> list[dict[str, Any]]:
    """Return questions put to a broker of "2.8", "3.9" or "4.4", in their order, and its answers."""
    return _lines(f"sessions/broker-{release}")


@cache
def acl_answers(release: str) -> list[dict[str, Any]]:
    """Return what a broker of "3.9" or "4.4" answered to a client of few rights, in other words than bytes."""
    return _lines(f"sessions/acls-{release}")


@cache
def transactions(release: str) -> list[dict[str, Any]]:
    """Return what a broker of "3.9" or "4.4" answered about transactions; first when that was."""
    return _lines(f"sessions/transactions-{release}")


@cache
def log_files(name: str = "kraft39-1-before-clean") -> dict[str, bytes]:
    """Return a broker's log directory: path below it -> content, as in "plain-0/00000000000000000000.index"."""
    packed = io.BytesIO((GOLDEN / f"logdirs/{name}.tar.gz").read_bytes())
    with tarfile.open(fileobj=packed) as archive:
        opened = ((member.name, archive.extractfile(member)) for member in archive if member.isfile())
        return {path.removeprefix(f"{name}/"): file.read() for path, file in opened if file}


@cache
def log_times(name: str = "kraft39-1-before-clean") -> dict[str, int]:
    """Return when each file of a log directory was written, in ms."""
    with tarfile.open(GOLDEN / f"logdirs/{name}.tar.gz") as archive:
        return {member.name.removeprefix(f"{name}/"): int(member.mtime * 1000) for member in archive}


@cache
def log_meaning(name: str = "kraft39-1-before-clean") -> dict[str, Any]:
    """Return what Kafka reads in a log directory: batches, index entries, epochs, snapshots, checkpoints."""
    loaded: dict[str, Any] = json.loads(_text(f"logdirs/{name}.expected.json"))
    return loaded


@cache
def transaction_steps() -> list[dict[str, Any]]:
    """Return walks through the decisions of Kafka's transaction coordinator, step by step."""
    return _lines("transaction-steps")


@cache
def producer_steps() -> list[dict[str, Any]]:
    """Return walks through what a partition's leader takes of producers, step by step."""
    return _lines("producer-steps")


@cache
def config_answers() -> list[dict[str, Any]]:
    """Return what a broker answered when settings were altered and described, in the order of the questions."""
    return _lines("config-answers")


@cache
def principal_names() -> list[dict[str, Any]]:
    """Return names of certificates as Java prints them, and what Kafka's rules make of names."""
    return _lines("principal-names")


@cache
def client_quotas() -> list[dict[str, Any]]:
    """Return questions about quotas, and what a broker 4.4.0 answered, in their order."""
    return _lines("client-quotas")


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _text(f"{name}.jsonl").splitlines()]


def _text(name: str) -> str:
    plain = GOLDEN / name
    if plain.exists():
        return plain.read_text("utf-8")
    if Path(f"{plain}.xz").exists():
        return lzma.open(f"{plain}.xz", "rt", encoding="utf-8").read()
    return gzip.open(f"{plain}.gz", "rt", encoding="utf-8").read()

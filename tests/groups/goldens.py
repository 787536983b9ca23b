"""What Kafka's own classes did: see golden/README.md."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any


def golden(name: str) -> Any:
    return json.loads(gzip.decompress((Path(__file__).parent / "golden" / f"{name}.json.gz").read_bytes()))


@cache
def golden_lines(name: str) -> list[Any]:
    data = gzip.decompress((Path(__file__).parent / "golden" / f"{name}.jsonl.gz").read_bytes())
    return [json.loads(line) for line in data.splitlines()]

"""Writes the seeds of every target into the corpus: `python -m tests.fuzz.make_corpus`, quick and repeatable.

Only adds: inputs that fuzzing found stay. File names are the start of the content's SHA-256, so the same input is
there once however often this runs.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.fuzz import compression, explain, messages, records, requests

CORPUS = Path(__file__).parent / "corpus"
TARGETS = {
    "messages": messages,
    "records": records,
    "compression": compression,
    "explain": explain,
    "requests": requests,
}
NAME_LETTERS = 12


def main() -> None:
    for name, target in TARGETS.items():
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for seed in target.seeds():
            (folder / hashlib.sha256(seed).hexdigest()[:NAME_LETTERS]).write_bytes(seed)
        files = list(folder.iterdir())
        print(f"{name}: {len(files)} files, {sum(file.stat().st_size for file in files)} bytes")


if __name__ == "__main__":
    main()

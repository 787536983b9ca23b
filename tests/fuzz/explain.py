"""Fuzz target: explanations of broken bytes of every kind.

    kind, number, version, then the bytes; number and version are those of a response

What must hold: no exception at all, as an explanation ends with the error. The parts of the given bytes lie side by
side, and each can be shown as JSON. Batches that can be read are explained to the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from minibroker.errors import ProtocolError
from minibroker.log.batches import batches
from minibroker.log.files import CHECKPOINT_COLUMNS
from minibroker.tools import explain as explaining
from tests import goldens
from tests.fuzz import messages, records

KINDS = ["", "response", *explaining.KINDS, *CHECKPOINT_COLUMNS]
CHOICE_BYTES = 3

# A pupil who explains a bomb may wait; a fuzzer would do nothing else.
explaining.UNPACKED_BYTES_MAX = 16 * 1024


def check(data: bytes) -> None:
    if len(data) < CHOICE_BYTES:
        return
    kind, api, version = KINDS[data[0] % len(KINDS)], messages.api_name(data[1]), data[2]
    data = data[CHOICE_BYTES:]
    found = explaining.explain(data, kind, api, version)
    if found.error:
        str(found.error)
    position = 0
    for part in found.parts:
        json.dumps(part.to_dict())
        if not part.inside:
            assert position == part.start <= part.end <= len(data), (part.path, position, part.start, part.end)
            position = part.end
    assert found.error or position == len(data), f"{len(data) - position} bytes are not explained"
    assert not (found.error and kind == "batch" and can_be_read(data)), found.error


def can_be_read(data: bytes) -> bool:
    try:
        for batch in batches(data, strict=True):
            for _ in batch.records(explaining.UNPACKED_BYTES_MAX):
                pass
    except ProtocolError:
        return False
    return True


def seeds() -> Iterator[bytes]:
    """Yield frames, batches, and every small file of a log directory once per kind and size."""
    vectors = [vector for vector in goldens.wire("requests") if vector["variant"] == "full"]
    for vector in vectors[::40]:
        yield bytes((KINDS.index("request"), 0, 0)) + messages.frame(vector)
    for vector in [vector for vector in goldens.wire("responses") if vector["variant"] == "null"][::40]:
        yield bytes((1, vector["apiKey"], vector["version"])) + bytes.fromhex(vector["header"] + vector["hex"])
    for index, seed in enumerate(records.seeds()):
        if index % 8 == 0:
            yield bytes((KINDS.index("batch") if index % 16 else 0, 0, 0)) + seed[1:]
    seen = set()
    for path, data in goldens.log_files().items():
        kind = explaining.file_kind(path.rpartition("/")[2])
        if kind and len(data) < 700 and (kind, len(data) // 32) not in seen:
            seen.add((kind, len(data) // 32))
            yield bytes((KINDS.index(kind), 0, 0)) + data
    for kind, data in BROKEN:
        yield bytes((KINDS.index(kind), 0, 0)) + data


BROKEN = [
    ("leader-epoch-checkpoint", b"0\n1\n-1 x\n"),
    ("leader-epoch-checkpoint", "0\n1\n² 5\n".encode()),  # a digit to `isdigit`, not to `int`
    ("leader-epoch-checkpoint", b"0\n1\n--5 5\n"),
    ("leader-epoch-checkpoint", b"0\n1\n\n5 5\n"),
    # A size that leads to before the batch, where Python counts from the end.
    (
        "batch",
        bytes.fromhex("00000000000000fffffffff3000000000299bfbe330001" + "00000000" + 30 * "ff")
        + bytes.fromhex("000000011f8b08000000000000ff1360606060ca662a630000a37fcfa60900000001"),
    ),
    # What compaction leaves of a compressed batch: a codec, and nothing for it to read.
    ("batch", bytes.fromhex("000000000000000000000031ffffffff022ce64e550001" + 34 * "ff" + "00000000")),
]

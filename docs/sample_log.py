"""Makes the part of docs/sample-log that has the numbers of articles about the formats: `python -m docs.generate`.

v0-0, v1-0, v2-0    "key": "value"; "value" without a key; ten values of six bytes in one request
                    34, 31, 320 bytes; 42, 39, 400; 76, 73, 191, the last one at position 149
v1-0, at 1025       six messages in a gzip wrapper: it bears 1030, and they count from 0
"""

from __future__ import annotations

from minibroker.log.build import build_batch
from minibroker.log.compression import GZIP
from minibroker.log.records import Record
from minibroker.tools.appended import append

TIME_MS = 1524709879130  # of the articles' own dumps
WRAPPER = "v1-0/00000000000000001025.log"  # gzip may pack otherwise elsewhere


def sample_files() -> dict[str, bytes]:
    """Return the files by their path below docs/sample-log."""
    found = {f"v{magic}-0/{0:020}.log": _log(magic) for magic in range(3)}
    six = [Record(None, b"message%d" % at, (), TIME_MS + at, at) for at in range(6)]
    found[WRAPPER] = append(build_batch(1, six, codec=GZIP), next_offset=1025, message_format=1).data
    return found


def _log(magic: int) -> bytes:
    ten = [Record(None, b"value%d" % at, (), TIME_MS, at) for at in range(10)]
    sent = ([Record(b"key", b"value", (), TIME_MS)], [Record(None, b"value", (), TIME_MS)], ten)
    log, offset = b"", 0
    for records in sent:
        log += append(build_batch(magic, records), next_offset=offset, message_format=magic).data
        offset += len(records)
    return log

"""The Kafka protocol: every message of every version, from wire bytes and back.

    from minibroker.protocol import message

    request = message("ListGroupsRequest")(states_filter=["Stable"])
    data = request.encode(4)
    message("ListGroupsRequest").decode(data, 4).to_dict()

headers.py    what stands in front of messages, and the two kinds of them
registry.py   every message by name and by number
framing.py    bytes as they arrive -> frames; a frame -> header and message
messages/     one module for each API

No I/O, no state but the codecs generated so far.
"""

from __future__ import annotations

from minibroker.protocol.registry import message, names

__all__ = ["message", "names"]

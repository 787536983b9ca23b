"""The members of groups for the clients that Python drives: `python group_member.py ADAPTER BOOTSTRAP [VARIANT]`.

Commands come on the input, events go to the output; group_script.py is the other end, README.md has the words. Each
member lives in a thread of its own, which polls and does in between what it is told.

Not here: what a client is called and how: the adapters, `<name>_group.py`, each a class Member with the methods `poll`,
`commit`, `committed`, `seek` and `close`, which calls `assigned` and `revoked` as its client does.
"""

from __future__ import annotations

import importlib
import json
import queue
import sys
import threading
import traceback
from collections.abc import Iterable
from typing import Any

SPOKEN = threading.Lock()


class Hosted:
    """One member and its thread."""

    def __init__(self, adapter: Any, bootstrap: str, variant: str, name: str, settings: dict[str, str]) -> None:
        self.name, self.settings = name, settings
        self.make = lambda: adapter.Member(bootstrap, variant, settings, self.assigned, self.revoked)
        self.commands: queue.Queue[tuple[str, dict[int, int]]] = queue.Queue()
        threading.Thread(target=self.live, daemon=True).start()

    def say(self, event: str, **what: object) -> None:
        say(member=self.name, event=event, **what)

    def assigned(self, partitions: Iterable[int]) -> None:
        self.say("assigned", partitions=[*partitions])

    def revoked(self, partitions: Iterable[int]) -> None:
        self.say("revoked", partitions=[*partitions])

    def live(self) -> None:
        try:
            member = self.make()
            while True:
                for partition, offset, value in member.poll():
                    self.say("record", partition=partition, offset=offset, value=value.decode())
                while not self.commands.empty():
                    word, offsets = self.commands.get()
                    self.obey(member, word, offsets)
                    if word == "leave":
                        return
        except Exception:
            self.say("error", text=traceback.format_exc())

    def obey(self, member: Any, word: str, offsets: dict[int, int]) -> None:
        if word == "committed":
            self.say("committed", offsets=member.committed())
            return
        if word == "leave":
            member.close()
        else:
            getattr(member, word)(offsets)
        self.say("done")


def say(**what: object) -> None:
    with SPOKEN:
        print(json.dumps(what), flush=True)


def to_offsets(text: str) -> dict[int, int]:
    pairs = (place.split(":") for place in text.split(",") if place)
    return {int(partition): int(offset) for partition, offset in pairs}


def main(name: str, bootstrap: str, variant: str = "") -> None:
    adapter = importlib.import_module(f"{name}_group")
    say(client=name, version=adapter.VERSION)
    members: dict[str, Hosted] = {}
    for line in sys.stdin:
        word, member, *words = line.split()
        settings = dict(one.split("=", 1) for one in words)
        if word == "join":
            members[member] = Hosted(adapter, bootstrap, variant, member, settings)
        else:
            members[member].commands.put((word, to_offsets(settings.get("at") or settings.get("to") or "")))


if __name__ == "__main__":
    main(*sys.argv[1:])

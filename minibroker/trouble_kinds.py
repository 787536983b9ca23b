"""Events of links, disks and the clock: numbers, of which sentences are made; event_kinds.py hands them on."""

from __future__ import annotations

from minibroker.events import Event


class Link(
    Event,
    kind="link",
    line="link {e.source}->{e.target} {e.state}",
    sentence="The link from {e.source} to {e.target} is {e.state}, because {e.why}.",
):
    """A link of the network was changed; the numbers are all that hold for it now."""

    source: str
    target: str
    what: str  # cut, healed, delayed, throttled or losing
    delay_ms: float = 0
    jitter_ms: float = 0  # it may take so much longer
    bytes_per_s: float = 0  # 0: any number
    lost_share: float = 0  # of the messages, 0 to 1
    why: str = "somebody asked for it"

    @property
    def state(self) -> str:
        if self.what == "delayed":
            return delay_text(self.delay_ms, self.jitter_ms) or "not delayed"
        if self.what == "throttled":
            return f"throttled to {self.bytes_per_s:g} bytes a second" if self.bytes_per_s else "not throttled"
        return f"losing {self.lost_share:.0%} of the messages" if self.what == "losing" else self.what


def delay_text(delay_ms: float, jitter_ms: float) -> str:
    """Return how long messages take, in words; nothing if they take no time."""
    if jitter_ms:
        return f"delayed by {delay_ms:g} to {delay_ms + jitter_ms:g} ms"
    return f"delayed by {delay_ms:g} ms" if delay_ms else ""


class DiskChange(
    Event,
    kind="disk",
    line="disk {e.source} {e.what}",
):
    """A disk of a cluster is in trouble, or works again."""

    source: str  # whose it is: the id of a broker, or controller
    what: str  # full, slow or healed
    write_ms: float = 0  # how long each write takes, if it is slow
    why: str = "somebody asked for it"

    @property
    def sentence(self) -> str:
        whose = f"broker {self.source}" if self.source.isdigit() else f"the {self.source}"
        state = {"full": "is full", "slow": f"takes {self.write_ms:g} ms for each write"}.get(self.what, "works again")
        return f"The disk of {whose} {state}, because {self.why}."


class Clock(
    Event,
    kind="clock",
    line="clock {e.state}",
    sentence="The clock {e.state}, because {e.why}.",
):
    """Somebody moved time."""

    what: str  # freeze, thaw, rate, jump or advance
    amount: float = 0  # by how many ms, or how many times as fast
    why: str = "somebody asked for it"

    @property
    def state(self) -> str:
        amount = int(self.amount) if self.amount == int(self.amount) else self.amount
        return {
            "freeze": "is frozen",
            "thaw": "runs again",
            "rate": f"runs at x{self.amount:g}",
            "jump": f"was set by {amount} ms",
            "advance": f"was advanced by {amount} ms",
        }.get(self.what, self.what)

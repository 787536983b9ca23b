"""Links, disks and the clock are told of in numbers; words are made of them in one place."""

from __future__ import annotations

from minibroker.event_kinds import Clock, DiskChange, Link

from .virtual import Lab, in_cluster


def test_links_and_disks_tell_what_holds_now_in_numbers() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.links.delay(1, 2, 500, one_way=True)
        cluster.links.throttle(1, 2, 2000, one_way=True)
        cluster.disks.slow(3, 20)
        cluster.disks.heal(3)
        links = [event for event in lab.heard if isinstance(event, Link)]
        assert [(each.what, each.delay_ms, each.bytes_per_s) for each in links] == [
            ("delayed", 500, 0),
            ("throttled", 500, 2000),
        ]
        assert links[0].sentence == "The link from 1 to 2 is delayed by 500 ms, because somebody asked for it."
        disks = [event for event in lab.heard if isinstance(event, DiskChange)]
        assert [(each.source, each.what, each.write_ms) for each in disks] == [("3", "slow", 20), ("3", "healed", 0)]
        assert disks[0].sentence.startswith("The disk of broker 3 takes 20 ms for each write, because")

    in_cluster(main)


def test_the_clock_tells_how_far_it_was_moved() -> None:
    assert Clock("advance", 60_000).line == "clock was advanced by 60000 ms"
    assert Clock("rate", 10).sentence == "The clock runs at x10, because somebody asked for it."

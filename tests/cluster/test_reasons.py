"""Why something was decided is told by who decided it: nobody sees it from what has changed."""

from __future__ import annotations

from .virtual import TOPIC, Lab, in_cluster


def test_a_leader_that_is_moved_away_has_not_lagged() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, assignments=[[1, 2, 3]])
        await lab.send(b"a")
        cluster.reassign(TOPIC, 0, [2, 3, 4])
        await cluster.waits.isr(TOPIC, brokers=[2, 3, 4])
        isr = next(event for event in lab.heard if event.line == "isr orders-0 1,2,3->2,3,4")
        assert isr.sentence.endswith(
            "because broker 4 has everything up to 1, and the high watermark is 1; with that the move to brokers "
            "2,3,4 is complete."
        )

    in_cluster(main, brokers=4)


def test_a_reason_that_did_not_travel_is_not_made_up() -> None:
    """Between processes messages are bytes, and no version of AlterPartition has a reason."""

    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.network.encodes = True
        cluster.create_topic(TOPIC, assignments=[[1, 2, 3]])
        cluster.links.cut(1, 3)
        await lab.send(b"a", timeout_ms=60_000)
        isr = next(event for event in lab.heard if event.kind == "isr")
        assert isr.sentence.endswith("because broker 1, which leads, says so.")

    in_cluster(main, settings={"replica.lag.time.max.ms": "5000"})

"""How leaders feed their followers, where a cluster shows it: in the words of a lesson."""

from __future__ import annotations

from minibroker.lessons.running import check
from minibroker.lessons.scenario import parse_scenario

from .virtual import TOPIC, Lab, in_cluster


def test_a_replica_that_is_being_added_is_not_waited_for() -> None:
    check(
        parse_scenario("""# It has never had everything
    start 2 brokers
    topic orders replicas=1
    produce orders-0 "a"

    hold answer of=2
    reassign orders-0 to 1,2
    produce orders-0 "b" acks=all
    ----
    ack b1->lesson orders-0 acks=-1 offset=1
    state: orders-0 b1 leo=2 hw=2
    state: orders-0 b2 leo=0
""")
    )


def test_where_consumers_read_from_followers_a_high_watermark_is_told_at_once() -> None:
    check(
        parse_scenario("""# Also to the follower whose fetch has moved it
    start 2 brokers racks=east,west
    topic orders replicas=1,2
    produce orders-0 "a" acks=all
    ----
    hw b2 orders-0 0->1
    state: orders-0 b2 leo=1 hw=1
""")
    )


def test_a_fetcher_that_is_stopped_while_it_gives_up_a_call_stays_stopped() -> None:
    async def main(lab: Lab) -> None:
        cluster = lab.cluster
        cluster.create_topic(TOPIC, 1)
        await cluster.waits.in_sync()
        replication = cluster.nodes[2].replication
        assert replication is not None
        fetcher = replication.following.fetchers[1]
        await lab.world.clock.sleep(100)  # its fetch waits for something new
        fetcher._go()  # a partition has come
        fetcher.stop()
        await lab.world.clock.sleep(100)
        assert fetcher._task is not None and fetcher._task.done()

    in_cluster(main)

"""Playing scenarios: what must happen has to, what must not may not, and whoever reads a failure knows what was."""

from __future__ import annotations

import pytest

from minibroker.lessons.running import LessonFailed, check, rehearse
from minibroker.lessons.scenario import Scenario, parse_scenario

pytestmark = pytest.mark.outside

START = """# Made up

    start 3 brokers
    topic orders replicas=1,2,3

"""


def made(step: str) -> Scenario:
    return parse_scenario(START + "\n".join(f"    {line}" for line in step.splitlines()), "made.txt")


WRONG = [
    (
        'produce orders-0 "a"\n----\nappend b1 orders-0 *\nappend b4 *',
        r"made.txt:9: `append b4 \*` did not happen after `append b1 orders-0 offsets=0..0 leo=1`; what happened:\n"
        r".*ack b1->lesson orders-0 acks=-1 offset=0",
    ),
    ("kill 1\n----\nleader orders-0 *->b2 *\nbroker b1 killed", "`broker b1 killed` did not happen after `leader"),
    ('produce orders-0 "a"\n----\nnever: ack *', r"made.txt:8: `ack b1->lesson .*` must not happen"),
    ("heal\n----\nstate: orders-0 b2 leo=1", "made.txt:8: orders-0 b2: leo is 0 and not 1"),
    ("heal\n----\nstate: orders-0 b2 size=1", "orders-0 b2 has no 'size'; it has leo, hw"),
    ("heal\n----\nstate: orders-0 b9 leo=1", "orders-0 has no replica on b9"),
    ("heal\n----\nstate: orders-7 leader=1", "there is no partition orders-7"),
    ("heal\n----\nstate: b2 paused", "b2 is running"),
    ("pause 2\nkill 2\n----\nstate: orders-0 b2 leo=0", "b2 does not run"),
    (
        "offsets orders-0\n----\ntold: earliest is 1,*",
        r"was not told; this was, in this order:\n    told: earliest is 0, latest is 0",
    ),
    ("kill 9", "made.txt:6: there is no broker 9: there are controller, 1, 2, 3"),
    ("start 1", "made.txt:6: broker 1 is running; it would have to be stopped or killed"),
    ("step", "no step waits; held are nothing"),
    ("start 2 brokers", "the cluster is there already"),
    ("topic orders", "TOPIC_ALREADY_EXISTS"),
    ("sync anna", "there is no member anna: join GROUP as anna"),
    ("heal\n----\nstate: group readers state=Stable", "group readers: state is nothing and not Stable"),
    ("heal\n----\nstate: group readers members=anna", "group readers has no 'members'; it has state"),
    (
        "commit orders-0 1 for readers\n----\nstate: group readers committed=orders-0@2",
        "committed is orders-0@1 and not",
    ),
    ('produce orders-0 "a" keyed', 'a keyed record is "key=value", or "-key" to delete it; not "a"'),
    ("compact lost-0", "UNKNOWN_TOPIC_OR_PARTITION: there is no topic 'lost'"),
    ("commit anna", "there is no producer anna: init anna, or init anna for ID"),
    ("init anna\ncommit anna", "anna has no transactional id: init anna for ID"),
    ("init anna\nresend anna", "anna has sent nothing"),
    ("init anna\narrive anna", "nothing of anna is on its way"),
    (
        'init anna for shop\nproduce orders-0 "a" as=anna\ninit ben for shop\nproduce orders-0 "b" as=ben',
        "ben has no producer id yet",
    ),
    (
        "heal\n----\nstate: orders-0 b1 lso=1 markers=0",
        "lso is 0 and not 1, markers is none and not 0",
    ),
    (
        "heal\n----\nstate: orders-0 b1 records=a segments=1 clean=0",
        "records is none and not a, segments is 0 .* never",
    ),
    ("heal\n----\nerror: *", "was not refused; this was, in this order:\n    nothing"),
    (
        "resend anna\noffsets orders-0\n----\ntold: earliest is 0,*\nerror: there is no producer*",
        "was not refused; this was, in this order:\n    error: there is no producer anna.*\n    told: .*latest is 0$",
    ),
    ("heal\ninit anna\nresend anna", "made.txt:8: anna has sent nothing"),
]


@pytest.mark.parametrize(("step", "said"), WRONG)
def test_what_went_otherwise_is_said(step: str, said: str) -> None:
    with pytest.raises(LessonFailed, match=f"(?s){said}"):
        check(made(step))


def test_a_lesson_begins_with_a_cluster() -> None:
    with pytest.raises(LessonFailed, match="begins with a cluster"):
        check(parse_scenario("# T\n\n    kill 1\n", "made.txt"))


def test_an_error_that_is_expected_is_none() -> None:
    check(made('kill 9\nproduce orders-0 "a" acks=1\n----\nerror: there is no broker 9*\nack *'))


def test_nothing_is_played_behind_a_failure() -> None:
    scenario = parse_scenario(START + "    kill 9\n\n    heal\n", "made.txt")
    assert [bool(outcome.failures) for outcome in rehearse(scenario)] == [False, True]


def test_time_stands_still_unless_it_is_moved() -> None:
    outcomes = rehearse(parse_scenario(START + "    advance 10m\n", "made.txt"))
    times = [outcome.state["now_ms"] for outcome in outcomes if outcome.state is not None]
    assert times[1] - times[0] == 600_000


def test_a_producer_may_speak_to_a_leader_that_was() -> None:
    check(
        made(
            'isolate 1\nadvance 20s\nheal 1 clients\nproduce orders-0 "lost" acks=1 to=1\n----\n'
            "leader orders-0 b1->b2 *\nack b1->lesson orders-0 acks=1 offset=0\n"
            "state: orders-0 leader=2\nstate: orders-0 b1 role=leader leo=1\nstate: orders-0 b2 role=leader leo=0"
        )
    )


def test_a_producer_may_speak_to_any_broker_while_nobody_leads() -> None:
    check(
        made(
            'topic single replicas=1\nkill 1\nproduce single-0 "a"\nproduce single-0 "b" to=2\n----\n'
            "error: LEADER_NOT_AVAILABLE: nobody leads\nerror: NOT_LEADER_OR_FOLLOWER: *"
        )
    )


def test_cleaning_goes_to_all_brokers_that_run_and_says_what_it_did_not_do() -> None:
    check(
        made(
            'roll orders-0\nproduce orders-0 "a"\nkill 3\nroll orders-0\nretention orders-0\ncompact orders-0\n----\n'
            "told: broker 1 did nothing: the active segment is empty\ntold: broker 2 did nothing: *\n"
            "told: broker 3 did nothing: *\n"
            "told: broker 1 did nothing: every segment is within retention.ms=604800000\n"
            "told: broker 2 did nothing: *\ntold: broker 1 did nothing: cleanup.policy is not compact\n"
            "told: broker 2 did nothing: *\nstate: orders-0 b1 segments=0,1\nstate: orders-0 b2 segments=0,1"
        )
    )


def test_batches_are_told_segment_by_segment() -> None:
    check(
        made(
            "set orders cleanup.policy=compact delete.retention.ms=120000\n"
            'produce orders-0 "a=1" "b=1" keyed\nproduce orders-0 "a=2" keyed\nproduce orders-0 "-b" keyed\n'
            "roll orders-0\nadvance 1s\ncompact orders-0\nbatches orders-0\nadvance 1m\nbatches orders-0\nadvance 2m\n"
            "batches orders-0\n----\n"
            "told: segment 0, *\ntold: batch 2..2: 1 record\n"
            "told: batch 3..3: 1 record; tombstones may go in 2 minutes\n"
            "told: segment 4, 0 bytes\ntold: batch 3..3: 1 record; tombstones may go in 1 minute\n"
            "told: batch 3..3: 1 record; tombstones may go any time now\n"
            "state: orders-0 b1 records=a=2,-b segments=0,4 clean=4"
        )
    )

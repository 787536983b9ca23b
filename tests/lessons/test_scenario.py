"""The grammar of scenarios: what a file may say, and what is said of one that is wrong."""

from __future__ import annotations

import pytest

from minibroker.lessons.commands import FORMS, parse_command
from minibroker.lessons.scenario import ScenarioError, parse_scenario

TEXT = """# A title

Some words
in two lines.

And more.

    start 3 brokers
    topic orders replicas=1,2,3
    ----
    topic orders created *
    never: leader *
    state: orders-0 b1 leo=0

Last words.
"""


def test_a_file_is_words_and_steps() -> None:
    scenario = parse_scenario(TEXT, "made.txt")
    (step,) = scenario.steps
    assert scenario.title == "A title"
    assert step.prose == ["Some words in two lines.", "And more."]
    assert [command.line for command in step.commands] == ["start 3 brokers", "topic orders replicas=1,2,3"]
    assert [(each.kind, each.text) for each in step.expectations] == [
        ("event", "topic orders created *"),
        ("never", "leader *"),
        ("state", "orders-0 b1 leo=0"),
    ]
    assert scenario.last_words == ["Last words."]


COMMANDS = [
    ("start 3 brokers racks=a,b", "start brokers", {"COUNT": 3, "racks": ["a", "b"]}),
    ("start 3 brokers log.retention.ms=5", "start brokers", {"COUNT": 3, "SETTINGS": {"log.retention.ms": "5"}}),
    ("start 1", "start", {"WHO": 1}),
    ("kill controller", "kill", {"WHO": "controller"}),
    ("kill 1 lossy torn=20", "kill", {"WHO": 1, "lossy": True, "torn": 20}),
    ("topic o replicas=1,2/2,1", "topic", {"NAME": "o", "replicas": [[1, 2], [2, 1]]}),
    (
        'produce a-b-7 "x" "y=z" acks=all later',
        "produce",
        {"PARTITION": ("a-b", 7), "TEXTS": ["x", "y=z"], "acks": -1, "later": True},
    ),
    (
        'produce orders-0 "a=1" "-a" keyed ahead=2h',
        "produce",
        {"PARTITION": ("orders", 0), "TEXTS": ["a=1", "-a"], "keyed": True, "ahead": "2h"},
    ),
    ("roll orders-0", "roll", {"PARTITION": ("orders", 0)}),
    ("retention orders-0", "retention", {"PARTITION": ("orders", 0)}),
    ("compact orders-0", "compact", {"PARTITION": ("orders", 0)}),
    ("batches orders-0", "batches", {"PARTITION": ("orders", 0)}),
    ("consume orders-0 from=earliest", "consume", {"PARTITION": ("orders", 0), "from": "earliest"}),
    ("hold fetch answer of=2", "hold", {"KINDS": ["fetch", "answer"], "of": 2}),
    ("step", "step", {}),
    ("step fetch times=2", "step", {"KIND": "fetch", "times": 2}),
    ("cut 1 clients one-way", "cut", {"END": 1, "END'": "clients", "one-way": True}),
    ("heal", "heal", {}),
    ("advance 1.5h", "advance", {"TIME": "1.5h"}),
    ("reassign orders-0 cancel", "reassign cancel", {"PARTITION": ("orders", 0)}),
    ("wait isr orders-0 1,2", "wait isr", {"PARTITION": ("orders", 0), "BROKERS": [1, 2]}),
    ("wait in sync", "wait in sync", {}),
    ("wait group readers 2", "wait group", {"GROUP": "readers", "COUNT": 2}),
    ("delete orders-0 3", "delete", {"PARTITION": ("orders", 0), "OFFSET": 3}),
    (
        "consume orders-0 for readers reset=none",
        "consume for",
        {"PARTITION": ("orders", 0), "GROUP": "readers", "reset": "none"},
    ),
    ("commit orders-0 3 for readers", "commit for", {"PARTITION": ("orders", 0), "OFFSET": 3, "GROUP": "readers"}),
    ("commit orders-0 3 as anna", "commit as", {"PARTITION": ("orders", 0), "OFFSET": 3, "MEMBER": "anna"}),
    (
        "join readers as anna topics=a,b by=cooperative session=6s",
        "join as",
        {"GROUP": "readers", "MEMBER": "anna", "topics": ["a", "b"], "by": "cooperative", "session": "6s"},
    ),
    ("sync anna", "sync", {"MEMBER": "anna"}),
    ("heartbeat anna", "heartbeat", {"MEMBER": "anna"}),
    ("leave anna", "leave", {"MEMBER": "anna"}),
    (
        "consume orders-0 for readers committed",
        "consume for",
        {"PARTITION": ("orders", 0), "GROUP": "readers", "committed": True},
    ),
    ("init anna", "init", {"PRODUCER": "anna"}),
    (
        "init anna for shop-1 classic timeout=5s",
        "init for",
        {"PRODUCER": "anna", "ID": "shop-1", "classic": True, "timeout": "5s"},
    ),
    (
        'produce orders-0 "a" as=anna lost',
        "produce",
        {"PARTITION": ("orders", 0), "TEXTS": ["a"], "as": "anna", "lost": True},
    ),
    ("resend anna", "resend", {"PRODUCER": "anna"}),
    ("commit anna lost", "commit", {"PRODUCER": "anna", "lost": True}),
    (
        "commit orders-0 3 for readers as=anna",
        "commit for",
        {"PARTITION": ("orders", 0), "OFFSET": 3, "GROUP": "readers", "as": "anna"},
    ),
    ("abort anna delayed", "abort", {"PRODUCER": "anna", "delayed": True}),
    ("arrive anna", "arrive", {"PRODUCER": "anna"}),
    ("transactions in orders-0", "transactions in", {"PARTITION": ("orders", 0)}),
    ("find hanging orders-0 timeout=5m", "find hanging", {"PARTITION": ("orders", 0), "timeout": "5m"}),
    ("abort hanging orders-0 2", "abort hanging", {"PARTITION": ("orders", 0), "OFFSET": 2}),
    ("hold marker", "hold", {"KINDS": ["marker"]}),
]


@pytest.mark.parametrize(("line", "verb", "values"), COMMANDS, ids=[line for line, _, _ in COMMANDS])
def test_a_command_is_read_by_its_form(line: str, verb: str, values: dict[str, object]) -> None:
    command = parse_command(line)
    assert (command.verb, command.values) == (verb, values)


def test_every_form_has_its_act() -> None:
    from minibroker.lessons.commands import Command
    from minibroker.lessons.stage import ACTS, VERBS

    assert sorted(Command("", form, {}).verb for form in FORMS) == sorted([*ACTS, *VERBS, "heal"])


WRONG = [
    ("no title", "made.txt:1: the first line is the title"),
    ("# T\n\nwords only\n", "made.txt: there is no step"),
    ("# T\n\n    strat 3 brokers\n", "made.txt:3: there is no command 'strat'; did you mean start[?] There are "),
    ("# T\n\n    qqqq\n", "made.txt:3: there is no command 'qqqq'[.] There are "),
    ("# T\n\n    start three brokers\n", "made.txt:3: .*start COUNT brokers .*'three' is no COUNT"),
    ("# T\n\n    produce orders-0 a\n", 'made.txt:3: .*records stand "in quotes"'),
    ("# T\n\n    produce orders-0\n", "made.txt:3: .*TEXTS is missing"),
    ("# T\n\n    hold fetch anser\n", "made.txt:3: .*one of fetch, answer, isr"),
    ("# T\n\n    kill 1 softly\n", "made.txt:3: .*'softly' is too much"),
    ("# T\n\n    sync anna-1\n", "made.txt:3: .*'anna-1' is no MEMBER: one is called anna"),
    ("# T\n\n    join g as anna by=range\n", "made.txt:3: .*one of eager, cooperative, consumer"),
    ('# T\n\n    produce orders-0 "a=1" keyed ahead=soon\n', "made.txt:3: .*'soon' is no TIME"),
    ("# T\n\n    kill 1 torn=x\n", "made.txt:3: .*'x' is no COUNT"),
    ("# T\n\n    kill 1 torm=3\n", "made.txt:3: .*there is no torm= here"),
    ("# T\n\n    heal\n    ----\n    happens: x\n", "made.txt:5: .*neither an event .*nor one of never:, state:"),
    ("# T\n\n    heal\nwords\n", "made.txt:4: an empty line has to be"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_what_is_wrong_is_said_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=f"(?s){said}"):
        parse_scenario(text, "made.txt")

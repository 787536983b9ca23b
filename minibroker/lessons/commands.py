"""The commands of a lesson: their forms, and how a line is read by them.

    produce orders-0 "a" "b" acks=all later     is     produce PARTITION TEXTS [acks=ACKS] [to=BROKER] [later]

A form is a line as people type it. Lower-case words stand for themselves, upper-case ones for a value of that type;
what is in brackets may be left out, and may stand anywhere behind the verb.
What must hold: a line fits one form or none; who gets none is told the forms there are.
Not here: what commands do (stage.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from minibroker.clock.steered import duration_ms
from minibroker.security.rule_words import operation_of, resource_of

DURATION = re.compile(r"by_duration:(?:P(\d+D)|PT(\d+[HMS]))")  # of all that ISO 8601 has, one number

# Each with what it does, in the order in which people meet them.
FORMS = {
    "start COUNT brokers [racks=NAMES] [users=USERS] [authorizer] [as=RELEASE] [SETTINGS]": "start a cluster with a "
    "controller, once at the beginning; `users=alice:secret,bob:other`: clients have to log in; `authorizer`: access "
    "rules decide, and the first user is one of super.users; `as` a release such as 2.8, the last whose topics may "
    "have old formats (message.format.version)",
    "topic NAME [partitions=COUNT] [replicas=REPLICAS] [SETTINGS]": "make a topic; `replicas=1,2,3/2,3,1` says where "
    "the replicas of each partition are, the preferred leader first",
    "set TOPIC SETTINGS": "change settings of a topic",
    "produce PARTITION TEXTS [keyed] [ahead=TIME] [acks=ACKS] [to=BROKER] [as=PRODUCER] [later] [lost] [delayed] "
    "[format=FORMAT] [codec=CODEC] [times=COUNT] [bytes=COUNT]": ""
    "send records in one batch, without another try; `keyed`: each is `key=value`, or `-key`, a tombstone; `ahead`: by "
    "the clock of the producer, which is so much ahead; `to` another broker than the leader; `as` a producer that "
    "brokers know; `later` does not wait for the answer, `lost`: the answer is lost, `delayed`: the batch is held up "
    "on its way; `format`: as a producer of the time of v0 or v1 does; `codec` to compress with; `times`: all of them "
    "so many times; `bytes`: the first letter of each so often",
    "time PARTITION TEXTS": "send records with acks=all, let time pass by the millisecond, and tell after how long "
    "each replica has them, and the answer comes",
    "consume PARTITION [from=START] [rack=NAME] [committed]": "read on to the high watermark, from where it was left "
    "or `from` another place, as a consumer in a rack; `committed`: with isolation.level=read_committed",
    "consume PARTITION for GROUP [reset=POLICY] [committed]": "read as a consumer that has just started: from what "
    "the group has committed, else by `reset`: `latest` (if nothing is said), `earliest`, "
    "`none` or `by_duration:PT1H`",
    "init PRODUCER": "get a producer id, by which leaders know what was sent before (an idempotent producer)",
    "init PRODUCER for ID [classic] [timeout=TIME]": "become the producer of a transactional id; `classic`: in the "
    "protocol before transactions v2; `timeout` of its transactions",
    "resend PRODUCER": "send the last batch again, as it was",
    "commit PRODUCER [lost] [delayed]": "commit its transaction; `lost` and `delayed` as with produce",
    "abort PRODUCER [lost] [delayed]": "abort it",
    "arrive PRODUCER": "let arrive what was delayed, the first of it first",
    "transactions": "ask all coordinators what they know, as `minibroker transactions describe` does",
    "transactions in PARTITION": "ask its leader what is open there, as `minibroker transactions "
    "describe-producers` does",
    "find hanging PARTITION [timeout=TIME]": "compare the two, as `minibroker transactions find-hanging` does: what is "
    "open there, has not written for `timeout` (15m if nothing is said), and has no coordinator that would end it",
    "abort hanging PARTITION OFFSET": "have its leader write an abort marker for what is open from that offset on, as "
    "`minibroker transactions abort` does",
    "commit PARTITION OFFSET for GROUP [as=PRODUCER]": "commit for a group that nobody is in; `as` a producer: in its "
    "transaction",
    "commit PARTITION OFFSET as MEMBER": "commit as a member",
    "join GROUP as MEMBER [topics=NAMES] [by=PROTOCOL] [session=TIME] [rebalance=TIME]": "ask to be in a group, or to "
    "be in its next generation; `by` the protocol `eager`, `cooperative` or `consumer`",
    "sync MEMBER": "ask for its part (SyncGroup); who leads says who gets what",
    "heartbeat MEMBER": "say that it lives, and hear what is new",
    "leave MEMBER": "go",
    "delete PARTITION OFFSET": "delete the records before an offset (DeleteRecords)",
    "offsets PARTITION [committed]": "ask where a partition begins and ends (ListOffsets)",
    "roll PARTITION": "begin a new segment, on every broker that runs",
    "retention PARTITION": "let go of old segments now, on every broker that runs",
    "compact PARTITION": "compact now what may be compacted, dirty enough or not, on every broker that runs",
    "batches PARTITION": "tell what is in the leader's log, segment by segment",
    "connect CLIENT [by=MECHANISM]": "open a connection that is to log in, and say how (SaslHandshake): by "
    "`SCRAM-SHA-256`, if nothing is said, or `SCRAM-SHA-512`",
    "say first CLIENT as NAME": "send the first message of SCRAM: who one is",
    "say final CLIENT with WORD [nonce=CHANGE]": "send the last one, which proves that it knows a password; `nonce`: "
    "with its `own` part of the nonce alone, or with an `other` one",
    "check CLIENT": "look whether the broker has proved that it knows the password, too",
    "repeat first CLIENT of CLIENT": "send what another has sent, as it was",
    "repeat final CLIENT of CLIENT": "the same",
    "overhear CLIENT": "tell what who listens has heard of a login",
    "guess CLIENT TEXTS": "try passwords on what was heard, without asking anybody",
    "log in NAME": "let the producers and consumers of the lesson be this user from now on, with its right password",
    "allow NAME OPERATION RESOURCE [from=ADDRESS]": "make a rule, as the first user; a resource is "
    "`orders` or `topic:orders`, `group:readers`, `cluster`, with a `*` at its end all names that begin so",
    "deny NAME OPERATION RESOURCE [from=ADDRESS]": "make a rule that denies",
    "take back NAME OPERATION RESOURCE": "remove the rules that say so",
    "who may NAME OPERATION RESOURCE [from=ADDRESS]": "explain a decision, as `minibroker who-may` does",
    "topics": "ask for all topics, as the user who has logged in",
    "look for TOPIC": "ask for one topic",
    "limit NAME SETTINGS": "set limits of a client id, such as `producer_byte_rate=1000`",
    "send PARTITION COUNT bytes by NAME [for=TIME]": "send a request that is so long, as the client of that id; `for`: "
    "again and again, each as soon as it may, for so long",
    "want TOPIC RATES [for=TIME]": "let a producer for each partition, in their order, write so many bytes a second "
    "for so long (10 s), such as `100,5,5`, as far as it may",
    "instances": "tell what each broker has of what an instance is promised, as `minibroker instances` does",
    "rate NAME": "tell what the broker has counted of a client, second by second",
    "knock NAME": "ask for something small, whether one should be silent or not, and look whether it is answered",
    "hear NAME": "look again, and tell how long the answer took",
    "sizes TEXTS [keyed] [codec=CODEC] [times=COUNT] [bytes=COUNT]": "tell how many bytes such records take in each "
    "format; `times` and `bytes` as with produce",
    "bytes PARTITION OFFSET [NAMES]": "tell the fields of the batch that holds an offset, or some of them, as "
    "`minibroker explain` does",
    "changed PARTITION OFFSET": "tell what the leader has changed of what the producer sent, as `minibroker explain "
    "--stored-as` does",
    "explain offsets PARTITION OFFSET": "tell how the records of that batch come to their offsets, as `minibroker dump "
    "--explain-offsets` does",
    "fill PARTITION COUNT [bytes=COUNT] [codec=CODEC] [every=TIME]": "send so many records, each in a "
    "batch; `every`: so far apart, the last one now",
    "weigh PARTITION": "tell how many records, batches and bytes the leader's log has",
    "index PARTITION": "tell its segments, and what is in their indexes",
    "lookup PARTITION OFFSET": "tell each step of the way to an offset",
    "lookup PARTITION since TIME": "tell each step of the way to the first record since so long ago",
    "0.7 append TEXTS [codec=CODEC]": "append to a log as Kafka 0.7 had it, whose file is named 368; no broker has it",
    "0.7 fetch OFFSET": "read that log from an offset on",
    "hold KINDS [of=BROKER]": "let these wait for tokens from now on: " + "`fetch`, `answer`, `isr`, `election`, "
    "`metadata`, `marker`; `of` one follower, or for `marker` one coordinator",
    "step [KIND] [times=COUNT]": "let the first one that waits go on",
    "release [KINDS]": "let nothing wait any more",
    "kill WHO [lossy] [torn=COUNT] [unnoticed]": "as kill -9; `lossy`: what was not flushed is gone, but for `torn` "
    "bytes of it; `unnoticed`: the controller has to find out",
    "stop WHO": "stop in order",
    "start WHO": "start again what was stopped or killed",
    "pause WHO": "let a broker stand still",
    "resume WHO": "let it go on",
    "cut END END [one-way]": "let nothing through between two of: brokers, `controller`, `clients`",
    "delay END END TIME": "let messages between two take so long; 0 undoes it",
    "isolate WHO": "cut one off from everybody",
    "heal END END [one-way]": "undo that",
    "heal": "undo it everywhere",
    "freeze": "let the clock stand still, as it does when a lesson begins",
    "thaw": "let it run",
    "advance TIME": "move it on, such as by `30s`",
    "elect PARTITION [unclean]": "give it to its preferred leader; `unclean`: to any live replica",
    "move PARTITION to BROKER": "let another replica that is in sync lead",
    "reassign PARTITION to BROKERS": "move the replicas",
    "reassign PARTITION cancel": "give that up",
    "followers cut by RULE": "`epoch`, or as before Kafka 0.11 `high-watermark`: where a follower cuts its log when "
    "it begins to follow",
    "wait isr PARTITION BROKERS": "until these are in sync",
    "wait leader PARTITION BROKER": "until it leads",
    "wait hw PARTITION OFFSET": "until the leader's high watermark is there",
    "wait group GROUP COUNT": "until it is stable with so many members",
    "wait in sync": "until every replica has everything",
}

PIECE = re.compile(r'"([^"]*)"|(\S+)')
OPTION = re.compile(r"([\w.-]+)=(.*)", re.DOTALL)
LISTS = {"TEXTS", "KINDS"}  # take all that is left of the words
QUOTED = "\0"  # stands before a value that was in quotes


class CommandError(ValueError):
    """A line that is no command; the text says what would be."""


class Command:
    """A line that fits a form."""

    line_number = 0  # in the file that it stands in, if it stands in one

    def __init__(self, line: str, form: str, values: dict[str, Any]):
        self.line = line
        self.form = form
        self.values = values  # by type, or by option; flags are there if they were given

    @property
    def verb(self) -> str:
        """The words of the form that stand for themselves, as one: `wait isr`, `start brokers`."""
        words = [word for word in self.form.split() if word[0] != "[" and word == word.lower()]
        return " ".join(words)

    @property
    def topic(self) -> str:
        """The topic of its PARTITION."""
        name: str = self.values["PARTITION"][0]
        return name

    @property
    def partition(self) -> int:
        """The number of its PARTITION."""
        number: int = self.values["PARTITION"][1]
        return number

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)


def parse_command(line: str) -> Command:
    """Return the command that a line is."""
    words = [QUOTED + quoted if word == "" else word for quoted, word in PIECE.findall(line)]
    verb = words[0]
    forms = [form for form in FORMS if form.split()[0] == verb]
    if not forms:
        from difflib import get_close_matches

        verbs = list(dict.fromkeys(form.split()[0] for form in FORMS))
        near = get_close_matches(verb, verbs, 1)
        raise CommandError(
            f"there is no command {verb!r}{f'; did you mean {near[0]}?' if near else '.'} There are {', '.join(verbs)}"
        )
    reasons = []
    for form in forms:
        try:
            return Command(line, form, _fit(words, form))
        except CommandError as error:
            reasons.append(f"  {form}: {error}")
    raise CommandError("\n".join([f"{line!r} fits none of", *reasons]))


def _fit(words: list[str], form: str) -> dict[str, Any]:
    """Return the values of a line by a form."""
    pieces = form.split()
    required = [piece for piece in pieces if piece[0] != "["]
    optional = [piece[1:-1] for piece in pieces if piece[0] == "["]
    flags = {piece for piece in optional if piece == piece.lower()}
    options = dict(piece.split("=") for piece in optional if "=" in piece)
    takes_settings = "SETTINGS" in (*required, *optional)
    values: dict[str, Any] = {}
    plain = []
    for word in words:
        option = None if word[0] == QUOTED else OPTION.fullmatch(word)
        if word in flags:
            values[word] = True
        elif option is None:
            plain.append(word)
        elif option[1] in options:
            values[option[1]] = _value(options[option[1]], option[2])
        elif takes_settings:
            values.setdefault("SETTINGS", {})[option[1]] = option[2].strip('"')
        else:
            raise CommandError(f"there is no {option[1]}= here")
    if "SETTINGS" in required:
        required.remove("SETTINGS")
        if "SETTINGS" not in values:
            raise CommandError("a setting such as min.insync.replicas=2 is missing")
    _fit_plain(plain, required, [each for each in optional if each == each.upper() and "=" not in each], values)
    return values


def _fit_plain(words: list[str], required: list[str], optional: list[str], values: dict[str, Any]) -> None:
    """Take the words of a line one after the other, as the form has them."""
    left = list(words)
    for piece in [*required, *(each for each in optional if each != "SETTINGS")]:
        if not left:
            if piece in required:
                raise CommandError(f"{piece} is missing")
            break
        name = piece
        while name in values:  # cut END END
            name += "'"
        if piece in LISTS:
            values[name] = [_value(piece, word) for word in left]
            left.clear()
        elif piece == piece.lower():
            if left.pop(0) != piece:
                raise CommandError(f"{piece!r} is missing")
        else:
            values[name] = _value(piece, left.pop(0))
    if left:
        raise CommandError(f"{left[0].lstrip(QUOTED)!r} is too much")


# Values


def _value(kind: str, text: str) -> Any:
    is_quoted = text[:1] == QUOTED
    if is_quoted != (kind == "TEXTS"):
        wish = f"a {kind} has no quotes" if is_quoted else 'records stand "in quotes"'
        raise CommandError(f"{text.lstrip(QUOTED)!r}: {wish}")
    try:
        return TYPES[kind](text)
    except ValueError as error:
        raise CommandError(f"{text!r} is no {kind}: {error}") from None


def _partition(text: str) -> tuple[str, int]:
    topic, dash, number = text.rpartition("-")
    if not dash or not number.isdigit():
        raise ValueError("one is called orders-0")
    return topic, int(number)


def _brokers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


def _policy(text: str) -> str:
    if DURATION.fullmatch(text):
        return text
    return _one_of("latest", "earliest", "none", "by_duration:PT1H")(text)


def policy_since(policy: str, now_ms: int) -> int | None:
    """Return the time that `by_duration:PT1H` goes back to; None: it is another policy."""
    found = DURATION.fullmatch(policy)
    return None if found is None else int(now_ms - duration_ms((found[1] or found[2]).lower()))


def _one_of(*words: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text not in words:
            raise ValueError(f"it is one of {', '.join(words)}")
        return text

    return check


def _member(text: str) -> str:
    if not text.isalnum():
        raise ValueError("one is called anna")
    return text


def _end(text: str) -> int | str:
    return int(text) if text.isdigit() else _one_of("controller", "clients")(text)


def _who(text: str) -> int | str:
    return int(text) if text.isdigit() else _one_of("controller")(text)


def _acks(text: str) -> int:
    return {"all": -1, "-1": -1, "0": 0, "1": 1}[_one_of("all", "-1", "0", "1")(text)]


def _start(text: str) -> int | str:
    return int(text) if text.isdigit() else _one_of("earliest", "latest")(text)


def _time(text: str) -> str:
    duration_ms(text)
    return text


def _users(text: str) -> dict[str, str]:
    found = {name: password for name, _, password in (each.partition(":") for each in text.split(","))}
    if not all(found) or not all(found.values()):
        raise ValueError("users are NAME:PASSWORD,NAME:PASSWORD")
    return found


KIND = _one_of("fetch", "answer", "isr", "election", "metadata", "marker")
TYPES: dict[str, Callable[[str], Any]] = {
    "ACKS": _acks,
    "ADDRESS": str,
    "CODEC": _one_of("none", "gzip", "snappy", "lz4", "zstd"),
    "FORMAT": lambda text: int(_one_of("0", "1", "2")(text)),
    "RELEASE": str,
    "BROKER": int,
    "BROKERS": _brokers,
    "CHANGE": _one_of("own", "other"),
    "CLIENT": _member,
    "COUNT": int,
    "END": _end,
    "GROUP": str,
    "ID": str,
    "KIND": KIND,
    "KINDS": KIND,
    "MECHANISM": _one_of("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "MEMBER": _member,
    "NAME": str,
    "NAMES": lambda text: text.split(","),
    "OFFSET": int,
    "OPERATION": operation_of,
    "PARTITION": _partition,
    "POLICY": _policy,
    "PRODUCER": _member,
    "PROTOCOL": _one_of("eager", "cooperative", "consumer"),
    "RATES": _brokers,
    "REPLICAS": lambda text: [_brokers(each) for each in text.split("/")],
    "RESOURCE": resource_of,
    "RULE": _one_of("epoch", "high-watermark"),
    "START": _start,
    "TEXTS": lambda text: text[1:],
    "TIME": _time,
    "TOPIC": str,
    "USERS": _users,
    "WHO": _who,
    "WORD": str,
}

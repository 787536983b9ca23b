"""The picture of a cluster: what `minibroker watch` shows, as lines of text.

    the brokers that clients begin with, and the clock
    brokers, what is cut, what waits at gates
    each partition, replica by replica
    what is said (a lesson's words), what happened last, and the keys

What must hold: the same state has the same frame; never more lines or columns than there are.
"""

from __future__ import annotations

from minibroker.event_kinds import delay_text, is_internal
from minibroker.watch.lanes import NOBODY, group_lines, partition_lines
from minibroker.watch.painting import paint, pressed_into, wrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from minibroker.cluster.snapshot import BrokerState, ClusterState, LinkState, PartitionState
    from minibroker.watch.painting import Piece

DAY_MS = 86_400_000
EVENT_LINES_MIN = 4  # of what happened last
KEYS = "s step  h hold  r release  a advance  f freeze  k kill/start  p pause/resume  <> choose  "
KEYS += "t topic  PgUp PgDn scroll  ? help  q quit"


def frame(
    state: ClusterState,
    width: int = 80,
    height: int = 24,
    *,
    colour: bool = False,
    chosen: int = NOBODY,
    words: Sequence[str] = (),
    keys: str = "",
    topic: str = "",
    first: int = 0,
) -> list[str]:
    """Return the lines of a picture. chosen: the broker that keys are about. words: paragraphs to be shown.

    topic: the only one to be shown, of those of the brokers too. first: so many partitions are passed over.
    """
    brokers = {str(each["id"]): each for each in state["brokers"]}
    head = [_title(state), _brokers(state, chosen)]
    head += [[("bad", line)] for line in _troubles(state)]
    head.append([])
    lanes: list[list[Piece]] = []
    for partition in shown_partitions(state, topic)[first:]:
        lanes += partition_lines(partition, brokers, width, chosen)
        lanes.append([])
    groups = [line for each in state["groups"] for line in group_lines(each, width)]
    lanes += [*groups, []] if groups else []
    said: list[list[Piece]] = [[("bold", line)] for each in words for line in [*wrap(each, width), ""]]
    foot: list[list[Piece]] = [
        [("reverse", line.ljust(width))] for line in key_lines(keys, width)[: max(1, height // 4)]
    ]
    room = height - len(head) - len(foot)
    said = pressed_into(said, max(room - EVENT_LINES_MIN - 4, 0)) if said else []
    lanes = pressed_into(lanes, max(room - len(said) - EVENT_LINES_MIN, 1))
    happened = _happened(state, width)
    happened = happened[max(len(happened) - max(room - len(said) - len(lanes), 0), 0) :]
    return [paint(pieces, width, colour=colour) for pieces in [*head, *lanes, *said, *happened, *foot]][:height]


def shown_partitions(state: ClusterState, topic: str = "") -> list[PartitionState]:
    """Return the partitions of a topic, or of all but those of the brokers themselves: there are fifty of them."""
    return [
        each for each in state["partitions"] if (each["topic"] == topic if topic else not is_internal(each["topic"]))
    ]


def key_lines(keys: str, width: int) -> list[str]:
    """Return keys and what they do in as many lines as it takes: two spaces divide them, and none is cut in two."""
    lines: list[str] = []
    for key in keys.split("  ") if keys else ():
        if lines and len(lines[-1]) + 2 + len(key) <= width:
            lines[-1] += f"  {key}"
        else:
            lines.append(key)
    return lines


def time_of(now_ms: int) -> str:
    """Return the time of the day."""
    seconds, ms = divmod(now_ms % DAY_MS, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{ms:03}"


def _title(state: ClusterState) -> list[Piece]:
    clock = f"{time_of(state['now_ms'])}{' (frozen)' if state['is_frozen'] else ''}"
    return [("bold", clock), ("", f"  {state['bootstrap']}")]


def _brokers(state: ClusterState, chosen: int) -> list[Piece]:
    pieces: list[Piece] = []
    for each in state["brokers"]:
        mark = ">" if each["id"] == chosen else ""
        style = "bad" if each["state"] != "running" else "bold" if mark else ""
        pieces.append((style, f"{mark}b{each['id']} {_state(each)}  "))
    if state["controller"] != "running":
        pieces.append(("bad", f"controller {state['controller']}"))
    return pieces


def _state(broker: BrokerState) -> str:
    rack = f" in {broker['rack']}" if broker["rack"] else ""
    return broker["state"] + (", fenced" if broker["is_fenced"] and broker["state"] == "running" else "") + rack


def _troubles(state: ClusterState) -> list[str]:
    cuts = [tuple(each) for each in state["cuts"]]
    both = [f"{a}-{b}" for a, b in cuts if a < b and (b, a) in cuts]
    one_way = [f"{a}->{b}" for a, b in cuts if (b, a) not in cuts]
    clients = [f"{each['id']}-clients" for each in state["brokers"] if each["is_cut_from_clients"]]
    lines = [f"cut: {', '.join([*both, *one_way, *clients])}"] if cuts or clients else []
    lines += _links(state)
    for whose, kind, write_ms in state["disks"]:
        lines.append(f"disk of {whose} {'is full' if kind == 'full' else f'takes {write_ms:g} ms for each write'}")
    for gate in dict.fromkeys(gate for gate, _ in state["held"]):
        waiting = [what for each, what in state["held"] if each == gate]
        lines.append(f"{gate} waits: {', '.join(waiting)}")
    return lines


def _links(state: ClusterState) -> list[str]:
    """Return a line for all links of which the same is true: 1-2, 3->1 delayed by 50 ms."""
    words = {(each["source"], each["target"]): _link_words(each) for each in state["links"]}
    by_words: dict[str, list[str]] = {}
    for (a, b), what in words.items():
        if words.get((b, a)) != what:
            by_words.setdefault(what, []).append(f"{a}->{b}")
        elif a < b:
            by_words.setdefault(what, []).append(f"{a}-{b}")
    return [f"{', '.join(sorted(links))} {what}" for what, links in by_words.items()]


def _link_words(link: LinkState) -> str:
    words = [delay_text(link["delay_ms"], link["jitter_ms"])]
    words.append(f"{link['bytes_per_s']:g} bytes/s" if link["bytes_per_s"] else "")
    words.append(f"loses {link['lost_share']:.0%}" if link["lost_share"] else "")
    return ", ".join(filter(None, words))


def _happened(state: ClusterState, width: int) -> list[list[Piece]]:
    lines: list[list[Piece]] = []
    for at_ms, sentence in state["said"]:
        first, *more = wrap(sentence, width - 14) or [""]
        lines.append([("dim", f"{time_of(at_ms)}  "), ("", first)])
        lines += [[("", f"{'':14}{line}")] for line in more]
    return lines

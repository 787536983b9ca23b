"""Records in by `produce`, out by `consume`: keys, headers, nulls, bytes, codecs, formats, where to begin and end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import Shell

FORMAT = "%t %p %o %K:%k %S:%s %h\n"


def written(shell: Shell, topic: str, format: str = FORMAT) -> list[str]:
    return shell.good("consume", "-t", topic, "-e", "-q", "-f", format).lines


def test_lines_are_records(shell: Shell, topic: str) -> None:
    shell.good("produce", "-t", topic, stdin=b"one\ntwo\n\nlast without end")
    assert shell.good("consume", "-t", topic, "-e").output == b"one\ntwo\n\nlast without end\n"


def test_kcats_modes_do_the_same(shell: Shell, topic: str) -> None:
    shell.good("-P", "-b", shell.address, "-t", topic, stdin=b"one\n")
    assert shell.good("-b", shell.address, "-C", "-e", "-t", topic).output == b"one\n"


def test_keys_and_headers(shell: Shell, topic: str) -> None:
    shell.good("produce", "-t", topic, "-K", ":", "-H", "a=1", "-H", "none", stdin=b"k:v\n:empty\nno key\n")
    assert written(shell, topic) == [
        f"{topic} 0 0 1:k 1:v a=1,none=NULL",
        f"{topic} 0 1 0: 5:empty a=1,none=NULL",
        f"{topic} 0 2 -1: 6:no key a=1,none=NULL",
    ]


def test_one_key_for_all(shell: Shell, topic: str) -> None:
    shell.good("produce", "-t", topic, "-k", "ö", stdin=b"1\n2\n")
    assert written(shell, topic, "%k=%s\n") == ["ö=1", "ö=2"]


def test_null_is_what_is_empty_if_wanted(shell: Shell, topic: str) -> None:
    shell.good("produce", "-t", topic, "-Z", "-K:", stdin=b"k:\n:v\n")
    assert written(shell, topic, "%K %S\n") == ["1 -1", "-1 1"]
    assert shell.good("consume", topic, "-eqZ", "-K:").lines == ["k:NULL", "NULL:v"]
    assert shell.good("consume", topic, "-eq", "-K:").lines == ["k:", ":v"]


def test_bytes_come_back_as_they_went(shell: Shell, topic: str, tmp_path: Path) -> None:
    data = bytes(range(256)) * 10
    (tmp_path / "data").write_bytes(data)
    shell.good("produce", "-t", topic, str(tmp_path / "data"))
    assert shell.good("consume", topic, "-e", "-D", "").output == data
    assert shell.good("consume", topic, "-e", "-f", "%R%s").output == len(data).to_bytes(4, "big") + data


def test_a_topic_may_stand_in_front_of_the_files(shell: Shell, topic: str, tmp_path: Path) -> None:
    shell.good("produce", topic, stdin=b"a line\n")
    (tmp_path / "data").write_bytes(b"a file")
    shell.good("produce", topic, str(tmp_path / "data"))
    assert shell.good("consume", topic, "-e").lines == ["a line", "a file"]


def test_delimiters_may_be_any(shell: Shell, topic: str) -> None:
    shell.good("produce", "-t", topic, "-D", "\\x00--", "-K", "\\t", stdin=b"a\t1\0--b\t2\0-\0--")
    assert shell.good("consume", topic, "-eq", "-K", " ", "-D", "|").output == b"a 1|b 2\0-|"


def test_lines_of_files(shell: Shell, topic: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"{name} a\n{name} b\n")
    shell.good("produce", "-t", topic, "-l", str(tmp_path / "one"), str(tmp_path / "two"))
    assert shell.good("consume", topic, "-eq").lines == ["one a", "one b", "two a", "two b"]


@pytest.mark.parametrize("words", [("-z", "gzip"), ("-z", "snappy"), ("-z", "lz4"), ("-X", "compression.codec=zstd")])
def test_codecs(shell: Shell, topic: str, words: tuple[str, ...]) -> None:
    data = b"".join(b"line %d\n" % number for number in range(2000))
    shell.good("produce", "-t", topic, *words, stdin=data)
    assert shell.good("consume", topic, "-eq").output == data


@pytest.mark.parametrize("words", [("-a", "0"), ("--acks", "1"), ("-X", "acks=all"), ("--idempotent",), ("--sync",)])
def test_acks_and_idempotence(shell: Shell, topic: str, words: tuple[str, ...]) -> None:
    shell.good("produce", "-t", topic, *words, stdin=b"a\nb\nc\n")
    read = shell.good("consume", topic, "-c", "3", "--timeout-ms", "10000", "-q")
    assert read.lines == ["a", "b", "c"]


def test_a_partition_may_be_named(shell: Shell) -> None:
    ran = shell.good("produce", "-t", "orders", "-p", "2", "-v", stdin=b"here\n")
    assert "% Message delivered to partition 2 (offset 0)" in ran.errors
    assert shell.good("consume", "-t", "orders", "-p", "2", "-e", "-f", "%p %s\n").lines == ["2 here"]
    assert shell.good("consume", "-t", "orders", "-p", "0,1", "-e").lines == []


def test_keys_go_where_javas_client_sends_them(shell: Shell) -> None:
    shell.good("topics", "--create", "keyed", "-p", "10")
    shell.good("produce", "-t", "keyed", "-K:", stdin=b"ann:1\nbob:2\nann:3\n")
    lines = shell.good("consume", "keyed", "-eq", "-f", "%p %k\n").lines
    assert len({line for line in lines if line.endswith("ann")}) == 1


def test_json_loses_nothing(shell: Shell, topic: str) -> None:
    record = {"key": None, "payload": {"base64": "/w=="}, "headers": ["a", "x", "b", None], "ts": 1700000000000}
    shell.good("produce", "-t", topic, "-J", stdin=json.dumps(record).encode())
    read = shell.good("consume", topic, "-eJ", "-q")
    place = {"topic": topic, "partition": 0, "offset": 0, "tstype": "create", "broker": 1}
    assert json.loads(read.text) == place | record
    shell.good("produce", "-t", topic, "-J", stdin=read.output)
    first, second = shell.good("consume", topic, "-eq", "-f", "%T %K %h %s\n").output.splitlines()
    assert first == second == b"1700000000000 -1 a=x,b=NULL \xff"


@pytest.mark.parametrize("line", [b"{nonsense", b'{"payload":"v","headers":["a"]}'])
def test_broken_json_is_refused(shell: Shell, topic: str, line: bytes) -> None:
    ran = shell("produce", "-t", topic, "-J", stdin=line + b"\n")
    assert ran.status == 2
    assert "is no record in JSON" in ran.errors


def test_the_spellings_of_the_console_tools(shell: Shell, topic: str) -> None:
    shell.good(
        *("produce", "--bootstrap-server", shell.address, "--topic", topic, "--compression-codec"),
        *("--property", "parse.key=true", "--property", "key.separator=|", "--reader-property", "parse.headers=true"),
        *("--property", "null.marker=NIL", "--producer-property", "acks=1", "--request-required-acks", "1"),
        stdin=b"h:1,i:NIL\tk|v\nNIL\tNIL|NIL\n",
    )
    read = shell.good(
        *("consume", "--bootstrap-server", shell.address, "--topic", topic, "--from-beginning", "--max-messages", "2"),
        *("--property", "print.key=true", "--property", "print.offset=true", "--property", "print.headers=true"),
        *("--formatter-property", "print.partition=true", "--consumer-property", "isolation.level=read_committed"),
    )
    assert read.lines == ["Partition:0\tOffset:0\th:1,i:null\tk\tv", "Partition:0\tOffset:1\tNO_HEADERS\tnull\tnull"]
    with_time = shell.good("consume", topic, "-eq", "-c1", "--property", "print.timestamp=true").text
    assert with_time.startswith("CreateTime:1")


@pytest.fixture
def ten(shell: Shell, topic: str) -> str:
    records = [json.dumps({"payload": str(number), "ts": 1_700_000_000_000 + number * 1000}) for number in range(10)]
    shell.good("produce", "-t", topic, "-J", stdin="\n".join(records).encode())
    return topic


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ("", "0123456789"),
        ("-o beginning", "0123456789"),
        ("-o earliest", "0123456789"),
        ("--from-beginning", "0123456789"),
        ("-o end", ""),
        ("--offset latest", ""),
        ("-o 7", "789"),
        ("-o -2", "89"),
        ("-o -20", "0123456789"),
        ("-c 3", "012"),
        ("-o 4 --max-messages 2", "45"),
        ("-o s@1700000005000", "56789"),
        ("-o s@1700000004001 -o e@1700000007000", "56"),
        ("-o e@2023-11-14T22:13:23", "012"),
        ("-o s@2023-11-14T23:13:28+01:00", "89"),
        ("-o s@1800000000000", ""),
        ("-o e@1800000000000", "0123456789"),
        ("--isolation-level read_committed", "0123456789"),
        ("-c 0", ""),
    ],
)
def test_where_to_begin_and_to_end(shell: Shell, ten: str, words: str, read: str) -> None:
    assert "".join(shell.good("consume", "-t", ten, "-e", "-q", *words.split()).lines) == read


def test_a_moment_to_stop_at_is_an_end_of_its_own(shell: Shell, ten: str) -> None:
    assert shell.good("consume", ten, "-o", "e@1700000002000").lines == ["0", "1"]


def test_silence_is_an_end_if_wanted(shell: Shell, ten: str) -> None:
    assert len(shell.good("consume", ten, "--timeout-ms", "50").lines) == 10


def test_ends_of_partitions_are_announced(shell: Shell, ten: str) -> None:
    assert shell.good("-C", "-t", ten, "-e").errors == f"% Reached end of topic {ten} [0] at offset 10: exiting\n"
    assert shell.good("-C", "-t", ten, "-e", "-q").errors == ""


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        ("consume", 2, "which topic?"),
        ("consume missing", 1, "there is no such topic"),
        ("consume orders -p 9", 1, "orders has 3 partitions, there is no 9"),
        ("consume orders -p x", 2, "say a number"),
        ("consume orders -o stored", 2, "-o beginning"),
        ("consume orders -o soon", 2, "say beginning, end"),
        ("consume orders -o 1 --from-beginning", 2, "which of them"),
        ("consume orders -f %x", 2, "%x is none of %s"),
        ("consume orders --property print.keys=true", 2, "print.key,"),
        ("consume orders -X group.id=g", 2, "not known here"),
        ("consume orders -X isolation.level=none", 2, "read_uncommitted, read_committed"),
        ("consume orders -c many", 2, "invalid int"),
        ("produce", 2, "a topic is missing"),
        ("produce -t orders -p 9", 1, "there is no 9"),
        ("produce -t orders -z brotli", 2, "invalid choice"),
        ("produce -t orders -D \\xzz", 2, "two hexadecimal digits"),
        ("produce -t orders --idempotent -a 1", 2, "needs acks all"),
        ("produce -t orders nowhere/to/be/found", 2, "nowhere/to/be/found: No such file"),
        ("produce -t not/a/name", 1, "INVALID_TOPIC_EXCEPTION"),
    ],
)
def test_what_cannot_be_done_is_said(shell: Shell, words: str, status: int, reason: str) -> None:
    ran = shell(*words.split())
    assert (ran.status, ran.output) == (status, b"")
    assert reason in ran.errors


def test_a_record_that_is_refused_is_a_failure(shell: Shell) -> None:
    shell.good("topics", "--create", "small", "--config", "max.message.bytes=200", "--if-not-exists")
    ran = shell("produce", "-t", "small", "--sync", stdin=b"fits\n" + b"x" * 500 + b"\n")
    assert ran.status == 1
    assert "1 of 2 records were written, then: MESSAGE_TOO_LARGE" in ran.errors

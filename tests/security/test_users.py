"""Users that a start is given: their notation, and what is written down of them."""

from __future__ import annotations

from base64 import b64encode
from random import Random

import pytest

from minibroker.errors import KafkaError
from minibroker.metadata.image import MetadataImage
from minibroker.security.users import ScramUser, Users, parse_scram_user, parse_user


def image() -> MetadataImage:
    found = MetadataImage()
    found.features["metadata.version"] = 21
    return found


def stored(users: Users, into: MetadataImage, said: list[str] | None = None) -> list[tuple[str, int, int]]:
    records = users.records(into, Random(1), ([] if said is None else said).append)
    for record in records:
        into.apply(record)
    return [(each.name, each.mechanism, each.iterations) for each in records]  # type: ignore[attr-defined]


SALTED = b64encode(b"`!" * 32).decode()
CREDENTIALS = [
    ("SCRAM-SHA-256=[name=alice,password=secret]", ScramUser("alice", 1, 4096, None, "secret")),
    ('SCRAM-SHA-512=[name=alice,iterations=8192,password="se=cret"]', ScramUser("alice", 2, 8192, None, "se=cret")),
    (
        'SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="' + SALTED + '"]',
        ScramUser("alice", 2, 8192, b"7q", "", b"`!" * 32),
    ),
]


@pytest.mark.parametrize(("text", "user"), CREDENTIALS)
def test_credentials_are_read_as_kafka_storage_has_them(text: str, user: ScramUser) -> None:
    assert parse_scram_user(text) == user


BROKEN = [
    ("SCRAM-SHA-1=[name=a,password=hush]", "begins with one of SCRAM-SHA-256="),
    ("hush", "begins with one of"),
    ("SCRAM-SHA-256=name=a,password=hush", "stands [name=..."),
    ("SCRAM-SHA-256=[password=hush]", "no name"),
    ("SCRAM-SHA-256=[name=a]", "neither a password"),
    (f"SCRAM-SHA-256=[name=a,saltedpassword={b64encode(b'hush' * 8).decode()}]", "neither a password"),
    ("SCRAM-SHA-256=[name=a,salt=N3E=,saltedpassword=aHVzaA==]", "has 4 bytes, which SCRAM-SHA-256 never makes"),
    ("SCRAM-SHA-256=[name=a,salt=N3E=,saltedpassword=]", "has 0 bytes, which SCRAM-SHA-256 never makes"),
    ("SCRAM-SHA-256=[name=a,password=hush,name=b]", "it has 'name' twice"),
    ("SCRAM-SHA-256=[name=a,salt=?,password=hush]", "its salt is not base64"),
    ("SCRAM-SHA-256=[name=a,password=hush,iterations=4095]", "4096 to 16384"),
    ("SCRAM-SHA-256=[name=a,password=hush,iterations=many]", "4096 to 16384"),
    ("SCRAM-SHA-256=[name=a,password=hush,color=red]", "it has no 'color'"),
    ("SCRAM-SHA-256=[name=a,password=hu,sh]", "part number 3"),
]


@pytest.mark.parametrize(("text", "words"), BROKEN)
def test_other_credentials_are_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("[", r"\[")) as refused:
        parse_scram_user(text)
    assert "hush" not in str(refused.value)


def test_a_user_is_a_name_and_a_password_which_may_have_colons() -> None:
    assert parse_user("alice:se:cret") == ("alice", "se:cret")
    for text in ("alice", "alice:", ":hush", ""):
        with pytest.raises(ValueError, match="a user is NAME:PASSWORD"):
            parse_user(text)


def test_each_user_gets_both_mechanisms_and_nothing_is_written_twice() -> None:
    known = image()
    assert stored(Users({"alice": "a"}), known) == [("alice", 1, 4096), ("alice", 2, 4096)]
    assert stored(Users({"alice": "a"}), known) == []
    said: list[str] = []
    assert stored(Users({"bob": "b"}), known, said) == [("bob", 1, 4096), ("bob", 2, 4096)]
    assert not said
    assert stored(Users({"alice": "other"}), known, said) == [("alice", 1, 4096), ("alice", 2, 4096)]
    assert said == ["the data directory had another password of alice: that of this start is taken"]
    for text, _ in CREDENTIALS[1:]:
        assert stored(Users({}, [parse_scram_user(text)]), known) == [("alice", 2, 8192)]
    with pytest.raises(ValueError, match="alice is given two credentials for one mechanism"):
        Users({}, [parse_scram_user(text) for text, _ in CREDENTIALS[1:]])


def test_a_password_that_is_stored_with_more_rounds_stays_as_it_is() -> None:
    known = image()
    stored(Users({}, [parse_scram_user("SCRAM-SHA-512=[name=alice,iterations=8192,password=a]")]), known)
    assert stored(Users({"alice": "a"}), known) == [("alice", 1, 4096)]
    more = parse_scram_user("SCRAM-SHA-512=[name=alice,iterations=8193,password=a]")
    assert stored(Users({}, [more]), known) == [("alice", 2, 8193)]


def test_who_has_a_password_is_given_no_credential_besides() -> None:
    with pytest.raises(ValueError, match="alice is given a password and a credential"):
        Users({"alice": "a"}, [parse_scram_user("SCRAM-SHA-512=[name=alice,password=b]")])


def test_what_they_need_is_offered() -> None:
    assert Users({"alice": "a"}).mechanisms == "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    assert Users({}, [parse_scram_user(CREDENTIALS[1][0])]).mechanisms == "SCRAM-SHA-512"


@pytest.mark.parametrize("users", [{"": "x"}, {"alice": ""}, {"alice": None}, {7: "x"}])
def test_what_is_no_name_with_a_password_is_refused(users: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="names with passwords"):
        Users(users)


def test_no_password_is_shown() -> None:
    shown = repr((Users({"alice": "hush"}), parse_scram_user("SCRAM-SHA-256=[name=a,password=hush]")))
    assert "hush" not in shown


def test_metadata_of_old_have_no_place_for_them() -> None:
    old = image()
    old.features["metadata.version"] = 10
    with pytest.raises(KafkaError, match=r"raise it to 3\.5-IV2"):
        Users({"alice": "a"}).records(old, Random(1), print)

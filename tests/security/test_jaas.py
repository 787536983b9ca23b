"""JAAS lines of the forms that people use; what is none is refused without a word of what stands in it."""

from __future__ import annotations

import pytest

from minibroker.security.jaas import parse_jaas

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
LINES = [
    (f"{MODULE} required;", {}),
    (f'{MODULE} required user_alice="a" user_bob="b";', {"user_alice": "a", "user_bob": "b"}),
    (f'{MODULE}\n  REQUIRED\n  username="u"\n  password="p" ;\n', {"username": "u", "password": "p"}),
    (f"{MODULE} sufficient password='it is \"it\"';", {"password": 'it is "it"'}),
    (f'{MODULE} required password="a\\"b\\\\c\\n\\101";', {"password": 'a"b\\c\nA'}),
    (f"{MODULE} required password=secret-word_1;", {"password": "secret-word_1"}),
    (f'{MODULE} required /* users */ user_a="x" // the end\n;', {"user_a": "x"}),
    (f'{MODULE} required "user_a b"="x; y=z";', {"user_a b": "x; y=z"}),
]


@pytest.mark.parametrize(("text", "options"), LINES)
def test_lines_are_read(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text) == (MODULE, options)


BROKEN = [
    ("", "empty"),
    (MODULE, "a flag"),
    (f"{MODULE} needed;", "one of required"),
    (f'{MODULE} user_alice="hush";', "behind the login module"),
    (f'{MODULE} required user_alice="hush"', "end with ;"),
    (f"{MODULE} required user_alice=;", "option number 1 has no value"),
    (f'{MODULE} required user_alice "hush";', "has no ="),
    (f'{MODULE} required user_alice="hush;', "not closed"),
    (f"{MODULE} required user_alice=1hush;", "quotation marks"),
    (f"{MODULE} required user_alice=hu#sh;", "quotation marks"),
    (f'{MODULE} required; {MODULE} required a="hush";', "one login module"),
    (f"{MODULE} required /* hush", "comment"),
    (f'{MODULE} required a="hush" b="x" a="y";', "option number 3 has the name of one before it"),
]


@pytest.mark.parametrize(("text", "words"), BROKEN)
def test_other_lines_are_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        parse_jaas(text)
    assert "hush" not in str(refused.value)


def test_what_is_read_shows_no_password() -> None:
    assert "hush" not in repr(parse_jaas(f'{MODULE} required user_a="hush";'))

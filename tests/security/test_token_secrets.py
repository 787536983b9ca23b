"""Secrets of delegation tokens: the one that is meant is found, and a guess costs no look at all the others."""

from __future__ import annotations

from unittest.mock import patch

from minibroker.security import delegation_tokens
from minibroker.security.delegation_tokens import IDS_KEPT, TokenSecrets
from minibroker.stored.security import DelegationTokenRecord


def record(token_id: str) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner="User:alice", requester="User:alice", renewers=[], issue_timestamp=0, max_timestamp=1 << 50,
        expiration_timestamp=1 << 50, token_id=token_id,
    )  # fmt: skip


def test_a_token_is_found_by_its_secret_as_long_as_it_is_there() -> None:
    tokens = {f"id-{index}": record(f"id-{index}") for index in range(10)}
    secrets = TokenSecrets("key", lambda: tokens)
    secret = secrets.hmac_of("id-7")
    found = secrets.find(secret)
    assert found is not None
    assert found.token_id == "id-7"
    assert secrets.find(secret[:-1]) is None
    assert secrets.find(TokenSecrets("another key", lambda: tokens).hmac_of("id-7")) is None
    assert secrets.find(b"") is None
    del tokens["id-7"]
    assert secrets.find(secret) is None
    tokens["late"] = record("late")
    assert secrets.find(secrets.hmac_of("late")) is tokens["late"]


def test_a_token_is_found_whoever_has_logged_in_by_another_one_before() -> None:
    tokens = {"first": record("first")}
    secrets = TokenSecrets("key", lambda: tokens)
    assert secrets.find(b"") is None
    tokens["second"], tokens["third"] = record("second"), record("third")
    assert secrets.find_bearer("sha256", "third", 0) is not None
    found = secrets.find(secrets.hmac_of("second"))
    assert found is tokens["second"]
    tokens = {"late": record("late"), **tokens}  # another image, in another order
    assert secrets.find(secrets.hmac_of("late")) is tokens["late"]


def test_who_comes_with_a_token_that_has_expired_is_nobody() -> None:
    tokens = {"old": record("old")}
    secrets = TokenSecrets("key", lambda: tokens)
    tokens["old"].expiration_timestamp = 1000
    assert secrets.find_bearer("sha256", "old", 1000) is not None
    assert secrets.find_bearer("sha256", "old", 1001) is None
    tokens["old"].expiration_timestamp, tokens["old"].max_timestamp = 1 << 50, 1000
    assert secrets.find_bearer("sha256", "old", 1001) is None


def test_a_guess_makes_no_secret_of_any_token() -> None:
    tokens = {f"id-{index}": record(f"id-{index}") for index in range(100)}
    secrets = TokenSecrets("key", lambda: tokens)
    assert secrets.find(b"w" * 64) is None
    with patch.object(delegation_tokens.hmac, "digest") as made:
        assert secrets.find(b"x" * 64) is None
    made.assert_not_called()


def test_ids_of_tokens_that_are_gone_are_forgotten() -> None:
    tokens: dict[str, DelegationTokenRecord] = {}
    secrets = TokenSecrets("key", lambda: tokens)
    for index in range(3 * IDS_KEPT):
        tokens.clear()
        tokens[f"id-{index}"] = record(f"id-{index}")
        assert secrets.find(secrets.hmac_of(f"id-{index}")) is not None
    assert len(secrets._ids) <= IDS_KEPT + 4

"""SecurityAdmin: passwords for SCRAM, access rules and delegation tokens, as administrators ask for them.

What must hold: a password is hashed here and never sent; of it and of what is made of it nothing is in an error.
Not here: what rules decide (minibroker.security), topics and settings (admin.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from minibroker.client.cluster import Cluster
from minibroker.client.connection import error_of
from minibroker.client.descriptions import SomeFailed
from minibroker.client.security import SCRAM, new_salt
from minibroker.errors import KafkaError

USER = "User"
# Mechanism -> its number in requests.
MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
ITERATIONS = 4096
ANY = 1


class AccessRule(NamedTuple):
    """One access rule, by Kafka's codes; of a filter None and ANY are all, and the pattern type 2 what applies."""

    resource_type: int
    pattern_type: int
    resource_name: str | None
    principal: str | None
    host: str | None
    operation: int
    permission: int


class Password(NamedTuple):
    """A password that somebody is to have."""

    text: str
    iterations: int = ITERATIONS

    def __repr__(self) -> str:
        return "Password()"


class DelegationToken(NamedTuple):
    """A token; times are ms since 1970."""

    id: str
    hmac: bytes
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    ends_ms: int  # no renewal goes beyond it

    def __repr__(self) -> str:
        return f"DelegationToken({self.id!r})"


class SecurityAdmin:
    """Uses the connections of the cluster; nothing to close."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster

    # Passwords

    async def describe_passwords(self, users: Iterable[str] = ()) -> dict[str, dict[str, int]]:
        """Return mechanisms, and the iterations of each, by user; of all users if none is named."""
        from minibroker.protocol.messages.describe_user_scram_credentials import (
            DescribeUserScramCredentialsRequest,
            DescribeUserScramCredentialsResponse,
        )

        Row = DescribeUserScramCredentialsRequest.UserName
        rows = [Row(name=name) for name in dict.fromkeys(users)]
        answer: DescribeUserScramCredentialsResponse = await self._cluster.call(
            DescribeUserScramCredentialsRequest(users=rows or None)
        )
        _check(answer.error_code, answer.error_message)
        names = {number: name for name, number in MECHANISMS.items()}
        found: dict[str, dict[str, int]] = {}
        errors: dict[str, KafkaError] = {}
        for row in answer.results:
            if row.error_code:
                errors[row.user] = error_of(row.error_code, row.error_message or "")
            else:
                found[row.user] = {names.get(each.mechanism, "?"): each.iterations for each in row.credential_infos}
        if errors:
            raise SomeFailed(errors, found)
        return found

    async def set_password(self, user: str, mechanism: str, password: Password) -> None:
        """Let a user log in by a mechanism with a password, which is not sent."""
        from minibroker.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest

        salt = new_salt()
        salted = hashlib.pbkdf2_hmac(SCRAM[mechanism], password.text.encode(), salt, password.iterations)
        row = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=user,
            mechanism=MECHANISMS[mechanism],
            iterations=password.iterations,
            salt=salt,
            salted_password=salted,
        )
        await self._alter(AlterUserScramCredentialsRequest(deletions=[], upsertions=[row]))

    async def remove_password(self, user: str, mechanism: str) -> None:
        from minibroker.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest

        Row = AlterUserScramCredentialsRequest.ScramCredentialDeletion
        row = Row(name=user, mechanism=MECHANISMS[mechanism])
        await self._alter(AlterUserScramCredentialsRequest(deletions=[row], upsertions=[]))

    async def _alter(self, request: Any) -> None:
        answer = await self._cluster.call(request)
        for row in answer.results:
            _check(row.error_code, row.error_message)

    # Access rules

    async def find_rules(self, wanted: AccessRule) -> list[AccessRule]:
        """Return the rules that a filter matches."""
        from minibroker.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

        answer: DescribeAclsResponse = await self._cluster.call(DescribeAclsRequest(**_filter(wanted)))
        _check(answer.error_code, answer.error_message)
        return [
            AccessRule(
                resource.resource_type,
                resource.pattern_type,
                resource.resource_name,
                each.principal,
                each.host,
                each.operation,
                each.permission_type,
            )
            for resource in answer.resources
            for each in resource.acls
        ]

    async def add_rules(self, rules: Iterable[AccessRule]) -> None:
        """Make rules; one that is there already is no error."""
        from minibroker.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse

        Row = CreateAclsRequest.AclCreation
        wanted = list(rules)
        rows = [
            Row(
                resource_type=rule.resource_type,
                resource_name=rule.resource_name or "",
                resource_pattern_type=rule.pattern_type,
                principal=rule.principal or "",
                host=rule.host or "",
                operation=rule.operation,
                permission_type=rule.permission,
            )
            for rule in wanted
        ]
        answer: CreateAclsResponse = await self._cluster.call(CreateAclsRequest(creations=rows))
        for result in answer.results:
            _check(result.error_code, result.error_message)

    async def remove_rules(self, filters: Iterable[AccessRule]) -> list[AccessRule]:
        """Remove the rules that filters match; return them."""
        from minibroker.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse

        rows = [DeleteAclsRequest.DeleteAclsFilter(**_filter(wanted)) for wanted in filters]
        answer: DeleteAclsResponse = await self._cluster.call(DeleteAclsRequest(filters=rows))
        removed: dict[AccessRule, None] = {}
        for result in answer.filter_results:
            _check(result.error_code, result.error_message)
            for each in result.matching_acls:
                _check(each.error_code, each.error_message)
                rule = AccessRule(
                    each.resource_type,
                    each.pattern_type,
                    each.resource_name,
                    each.principal,
                    each.host,
                    each.operation,
                    each.permission_type,
                )
                removed[rule] = None
        return list(removed)

    # Delegation tokens

    async def create_token(
        self, *, owner: str | None = None, renewers: Iterable[str] = (), life_ms: int = -1
    ) -> DelegationToken:
        """Make a token that stands for its owner, who asks if nobody is named."""
        from minibroker.protocol.messages.create_delegation_token import (
            CreateDelegationTokenRequest,
            CreateDelegationTokenResponse,
        )

        Row = CreateDelegationTokenRequest.CreatableRenewers
        may_renew = tuple(renewers)
        rows = [Row(principal_type=kind, principal_name=name) for kind, name in map(_parted, may_renew)]
        request = CreateDelegationTokenRequest(renewers=rows, max_lifetime_ms=life_ms)
        if owner is not None:
            request.owner_principal_type, request.owner_principal_name = _parted(owner)
        answer: CreateDelegationTokenResponse = await self._cluster.call(request)
        _check(answer.error_code, "")
        whose = f"{answer.principal_type}:{answer.principal_name}"
        by = f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}"
        return DelegationToken(
            answer.token_id,
            bytes(answer.hmac),
            whose,
            whose if by == ":" else by,
            may_renew,
            answer.issue_timestamp_ms,
            answer.expiry_timestamp_ms,
            answer.max_timestamp_ms,
        )

    async def renew_token(self, hmac: bytes, *, period_ms: int = -1) -> int:
        """Return until when a token is good now."""
        from minibroker.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

        answer = await self._cluster.call(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms))
        _check(answer.error_code, "")
        expires_ms: int = answer.expiry_timestamp_ms
        return expires_ms

    async def expire_token(self, hmac: bytes, *, period_ms: int = -1) -> int:
        """Let a token end, at once if no period is named; return when."""
        from minibroker.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest

        answer = await self._cluster.call(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms))
        _check(answer.error_code, "")
        ends_ms: int = answer.expiry_timestamp_ms
        return ends_ms

    async def describe_tokens(self, owners: Iterable[str] = ()) -> list[DelegationToken]:
        """Return tokens; all that one may see, if no owner is named."""
        from minibroker.protocol.messages.describe_delegation_token import (
            DescribeDelegationTokenRequest,
            DescribeDelegationTokenResponse,
        )

        Row = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
        rows = [Row(principal_type=kind, principal_name=name) for kind, name in map(_parted, owners)]
        answer: DescribeDelegationTokenResponse = await self._cluster.call(
            DescribeDelegationTokenRequest(owners=rows or None)
        )
        _check(answer.error_code, "")
        tokens = []
        for each in answer.tokens:
            owner = f"{each.principal_type}:{each.principal_name}"
            by = f"{each.token_requester_principal_type}:{each.token_requester_principal_name}"
            renewers = tuple(f"{one.principal_type}:{one.principal_name}" for one in each.renewers)
            tokens.append(
                DelegationToken(
                    each.token_id,
                    bytes(each.hmac),
                    owner,
                    owner if by == ":" else by,
                    renewers,
                    each.issue_timestamp,
                    each.expiry_timestamp,
                    each.max_timestamp,
                )
            )
        return tokens


def _filter(wanted: AccessRule) -> Mapping[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _parted(principal: str) -> tuple[str, str]:
    """Return type and name; without a type it is a user."""
    kind, colon, name = principal.partition(":")
    return (kind, name) if colon else (USER, principal)


def _check(code: int, message: str | None) -> None:
    if code:
        raise error_of(code, message or "")

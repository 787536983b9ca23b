"""Delegation tokens made, renewed and ended (KIP-48, KIP-373; Kafka's DelegationTokenControlManager).

What must hold: who renews or ends a token is its owner or one of its renewers; no renewal reaches beyond its life.
Not here: over which connections tokens may be asked for (broker/handlers/delegation_tokens.py).
"""

from __future__ import annotations

from minibroker.errors import Error, KafkaError
from minibroker.metadata.features import DELEGATION_TOKENS
from minibroker.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from minibroker.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from minibroker.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from minibroker.security.delegation_tokens import TokenSecrets, has_expired
from minibroker.security.principal import USER, Principal
from minibroker.stored.security import DelegationTokenRecord, RemoveDelegationTokenRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

    from minibroker.config import BrokerConfig
    from minibroker.metadata.image import MetadataImage
    from minibroker.protocol.headers import Request, Response
    from minibroker.stored.kinds import MetadataRecord

    Decision = tuple[list[MetadataRecord], Response]

LONGEST: Final = (1 << 63) - 1
NO_TIME: Final = -1


class DelegationTokens:
    """What the controller decides of tokens."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        hmacs: TokenSecrets | None,
        *,
        renew_ms: int,
        life_ms: int,
        new_id: Callable[[], str],
    ):
        """hmacs: None, if the cluster has no key for them. renew_ms: delegation.token.expiry.time.ms."""
        self._image = image
        self._secrets = hmacs
        self._renew_ms = renew_ms
        self._life_ms = life_ms
        self._new_id = new_id

    def decide(self, request: Request, requester: Principal, now_ms: int) -> Decision:
        """Return what is to be written for a request, and its answer."""
        try:
            if self._secrets is None:
                raise KafkaError(Error.DELEGATION_TOKEN_AUTH_DISABLED)
            if self._image().metadata_version < DELEGATION_TOKENS:
                raise KafkaError(Error.UNSUPPORTED_VERSION)
            if isinstance(request, CreateDelegationTokenRequest):
                return self._create(self._secrets, request, requester, now_ms)
            if isinstance(request, RenewDelegationTokenRequest):
                token = self._find(self._secrets, request.hmac)
                if has_expired(token, now_ms):
                    raise KafkaError(Error.DELEGATION_TOKEN_EXPIRED)
                _check_rights(token, requester)
                return self._renew(token, request, now_ms)
            assert isinstance(request, ExpireDelegationTokenRequest), request
            token = self._find(self._secrets, request.hmac)
            _check_rights(token, requester)
            return self._expire(token, request, now_ms)
        except KafkaError as error:
            at_ms = NO_TIME if error.code == Error.INVALID_PRINCIPAL_TYPE else 0
            return [], refusal(request, requester, error.code, at_ms)

    def expired(self, now_ms: int) -> list[MetadataRecord]:
        """Return what removes the tokens whose time is over."""
        return [
            RemoveDelegationTokenRecord(token_id=token.token_id)
            for token in self._image().delegation_tokens.values()
            if has_expired(token, now_ms)
        ]

    def _create(
        self, hmacs: TokenSecrets, request: CreateDelegationTokenRequest, requester: Principal, now_ms: int
    ) -> Decision:
        owner = owner_of(request, requester)
        life_ms = min(self._life_ms, request.max_lifetime_ms) if request.max_lifetime_ms > 0 else self._life_ms
        max_ms = min(now_ms + life_ms, LONGEST)
        if not owner.type or ":" in owner.type or any(each.principal_type != USER for each in request.renewers):
            raise KafkaError(Error.INVALID_PRINCIPAL_TYPE)
        token = DelegationTokenRecord(
            owner=str(owner),
            requester=str(requester),
            renewers=[str(Principal(each.principal_type, each.principal_name)) for each in request.renewers],
            issue_timestamp=now_ms,
            max_timestamp=max_ms,
            expiration_timestamp=min(max_ms, now_ms + self._renew_ms),
            token_id=self._new_id(),
        )
        response = CreateDelegationTokenResponse(
            error_code=Error.NONE,
            principal_type=owner.type,
            principal_name=owner.name,
            token_requester_principal_type=requester.type,
            token_requester_principal_name=requester.name,
            issue_timestamp_ms=now_ms,
            expiry_timestamp_ms=token.expiration_timestamp,
            max_timestamp_ms=max_ms,
            token_id=token.token_id,
            hmac=hmacs.hmac_of(token.token_id),
            throttle_time_ms=0,
        )
        return [token], response

    def _find(self, hmacs: TokenSecrets, hmac: Any) -> DelegationTokenRecord:
        token = hmacs.find(bytes(hmac))
        if token is None:
            raise KafkaError(Error.DELEGATION_TOKEN_NOT_FOUND)
        return token

    def _renew(self, token: DelegationTokenRecord, request: RenewDelegationTokenRequest, now_ms: int) -> Decision:
        period_ms = request.renew_period_ms
        period_ms = min(self._renew_ms, period_ms) if period_ms > 0 else self._renew_ms
        expiry_ms = min(token.max_timestamp, now_ms + period_ms)
        response = RenewDelegationTokenResponse(
            error_code=Error.NONE, expiry_timestamp_ms=expiry_ms, throttle_time_ms=0
        )
        return [_until(token, expiry_ms)], response

    def _expire(self, token: DelegationTokenRecord, request: ExpireDelegationTokenRequest, now_ms: int) -> Decision:
        expiry_ms = now_ms
        record: MetadataRecord = RemoveDelegationTokenRecord(token_id=token.token_id)
        if request.expiry_time_period_ms >= 0:
            if has_expired(token, now_ms):
                raise KafkaError(Error.DELEGATION_TOKEN_EXPIRED)
            expiry_ms = min(token.max_timestamp, now_ms + request.expiry_time_period_ms)
            record = _until(token, expiry_ms)
        response = ExpireDelegationTokenResponse(
            error_code=Error.NONE, expiry_timestamp_ms=expiry_ms, throttle_time_ms=0
        )
        return [record], response


def tokens_of(config: BrokerConfig, image: Callable[[], MetadataImage], new_id: Callable[[], str]) -> DelegationTokens:
    """Return the tokens of a cluster with these settings."""
    return DelegationTokens(
        image,
        secrets_of(config, image),
        renew_ms=config["delegation.token.expiry.time.ms"],
        life_ms=config["delegation.token.max.lifetime.ms"],
        new_id=new_id,
    )


def secrets_of(config: BrokerConfig, image: Callable[[], MetadataImage]) -> TokenSecrets | None:
    key = config["delegation.token.secret.key"]
    return TokenSecrets(key, lambda: image().delegation_tokens) if key else None


def owner_of(request: CreateDelegationTokenRequest, requester: Principal) -> Principal:
    """Return whom a token is to stand for."""
    if not request.owner_principal_name:
        return requester
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def refusal(request: Request, requester: Principal, code: Error, at_ms: int = NO_TIME) -> Response:
    """Return the answer to a request that is not carried out; at_ms: in the place of times, of a controller's 0."""
    if isinstance(request, RenewDelegationTokenRequest):
        return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=at_ms, throttle_time_ms=0)
    if isinstance(request, ExpireDelegationTokenRequest):
        return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=at_ms, throttle_time_ms=0)
    assert isinstance(request, CreateDelegationTokenRequest), request
    owner = owner_of(request, requester)
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=at_ms,
        expiry_timestamp_ms=at_ms,
        max_timestamp_ms=at_ms,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    )


def _check_rights(token: DelegationTokenRecord, requester: Principal) -> None:
    if str(requester) not in (token.owner, *token.renewers):
        raise KafkaError(Error.DELEGATION_TOKEN_OWNER_MISMATCH)


def _until(token: DelegationTokenRecord, expiry_ms: int) -> DelegationTokenRecord:
    """Return a token with another end."""
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=token.renewers,
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=expiry_ms,
        token_id=token.token_id,
    )

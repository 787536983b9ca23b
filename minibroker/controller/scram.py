"""Passwords for SCRAM: what AlterUserScramCredentials writes down (KIP-554; Kafka's ScramControlManager).

What must hold: a user is altered once in a request, or not at all; the salted password is forgotten as soon as the two
keys are made of it, of which neither gives it back.
"""

from __future__ import annotations

from minibroker.errors import Error
from minibroker.metadata.features import SCRAM
from minibroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from minibroker.security.scram import DIGESTS, ITERATIONS_MAX, ITERATIONS_MIN, credential_of
from minibroker.stored.security import RemoveUserScramCredentialRecord, UserScramCredentialRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from minibroker.metadata.image import MetadataImage
    from minibroker.stored.kinds import MetadataRecord

    Reason = tuple[Error, str | None]
    Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
    Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion

TWICE: Final = (Error.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
TOO_OLD: Final = (Error.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")

Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


def alter_credentials(
    image: MetadataImage, request: AlterUserScramCredentialsRequest
) -> tuple[list[MetadataRecord], AlterUserScramCredentialsResponse]:
    """Return what is to be written for a request, and its answer."""
    wanted: dict[str, Deletion | Upsertion] = {}
    refused: dict[str, Reason] = {}

    def take(each: Deletion | Upsertion, fault_of: Callable[[], Reason | None]) -> None:
        if each.name in refused:
            return
        if wanted.pop(each.name, None) is not None:
            refused[each.name] = TWICE
        elif (fault := TOO_OLD if image.metadata_version < SCRAM else fault_of()) is not None:
            refused[each.name] = fault
        else:
            wanted[each.name] = each

    for deletion in request.deletions:
        take(deletion, lambda each=deletion: _deletion_fault(image, each))  # type: ignore[misc]
    for upsertion in request.upsertions:
        take(upsertion, lambda each=upsertion: _upsertion_fault(each))  # type: ignore[misc]
    records = [_record(each) for each in wanted.values()]
    results = [Result(user=name, error_code=Error.NONE, error_message=None) for name in wanted]
    results += [Result(user=name, error_code=code, error_message=words) for name, (code, words) in refused.items()]
    return records, AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)


def _deletion_fault(image: MetadataImage, deletion: Deletion) -> Reason | None:
    fault = _fault(deletion.name, deletion.mechanism)
    if fault is None and (deletion.name, deletion.mechanism) not in image.scram:
        return Error.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
    return fault


def _upsertion_fault(upsertion: Upsertion) -> Reason | None:
    fault = _fault(upsertion.name, upsertion.mechanism)
    if fault is None and not upsertion.salted_password:
        return Error.UNKNOWN_SERVER_ERROR, None  # Java makes no key of nothing
    if fault is None and not ITERATIONS_MIN <= upsertion.iterations <= ITERATIONS_MAX:
        words = f"Too {'few' if upsertion.iterations < ITERATIONS_MIN else 'many'} iterations"
        return Error.UNACCEPTABLE_CREDENTIAL, words
    return fault


def _fault(name: str, mechanism: int) -> Reason | None:
    if not name:
        return Error.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if mechanism not in DIGESTS:
        return Error.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    return None


def _record(wish: Deletion | Upsertion) -> MetadataRecord:
    if isinstance(wish, AlterUserScramCredentialsRequest.ScramCredentialDeletion):
        return RemoveUserScramCredentialRecord(name=wish.name, mechanism=wish.mechanism)
    salted, salt = bytes(wish.salted_password), bytes(wish.salt)
    stored = credential_of(DIGESTS[wish.mechanism], salted, salt, wish.iterations)
    return UserScramCredentialRecord(
        name=wish.name,
        mechanism=wish.mechanism,
        salt=salt,
        stored_key=stored.stored_key,
        server_key=stored.server_key,
        iterations=wish.iterations,
    )

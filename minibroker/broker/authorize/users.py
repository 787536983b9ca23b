"""Users and what limits them: the answers to who may not see or change them, with all that he named."""

from __future__ import annotations

from minibroker.errors import Error
from minibroker.protocol.messages.alter_client_quotas import AlterClientQuotasResponse
from minibroker.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsResponse
from minibroker.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsResponse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from minibroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
    from minibroker.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
    from minibroker.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

REFUSED = Error.CLUSTER_AUTHORIZATION_FAILED


def describe_scram(
    request: DescribeUserScramCredentialsRequest, words: str | None
) -> DescribeUserScramCredentialsResponse:
    """Return a row for each user, without his name, as Kafka does."""
    Row = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
    rows = [Row(user="", error_code=REFUSED, error_message=words, credential_infos=[]) for _ in request.users or []]
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0, error_code=REFUSED, error_message=words, results=rows
    )


def alter_scram(request: AlterUserScramCredentialsRequest, words: str | None) -> AlterUserScramCredentialsResponse:
    Row = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    names = dict.fromkeys([each.name for each in request.deletions] + [each.name for each in request.upsertions])
    rows = [Row(user=name, error_code=REFUSED, error_message=words) for name in names]
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=rows)


def alter_quotas(request: AlterClientQuotasRequest, words: str | None) -> AlterClientQuotasResponse:
    Row = AlterClientQuotasResponse.EntryData
    rows = [
        Row(
            error_code=REFUSED,
            error_message=words,
            entity=[
                Row.EntityData(entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity
            ],
        )
        for entry in request.entries
    ]
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=rows)

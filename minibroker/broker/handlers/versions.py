"""ApiVersions: what the broker serves.

Versions of ApiVersions: 3 clients introduce themselves, 4 features that begin at 0, 5 clients say whom they mean.
"""

from __future__ import annotations

from minibroker.broker.dispatch import Context
from minibroker.errors import Error
from minibroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

ApiVersion = ApiVersionsResponse.ApiVersion
Supported = ApiVersionsResponse.SupportedFeatureKey
Finalized = ApiVersionsResponse.FinalizedFeatureKey

LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


def api_versions(request: ApiVersionsRequest, context: Context) -> ApiVersionsResponse:
    """List the APIs; a client that introduces itself is remembered by name."""
    if context.api_version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(map(_is_valid, names)):
            return ApiVersionsResponse(error_code=Error.INVALID_REQUEST, api_keys=[])
        context.connection.client_software = names
    node = context.node
    if (request.cluster_id is None) != (request.node_id == -1):
        return ApiVersionsResponse(error_code=Error.INVALID_REQUEST, api_keys=[])
    if request.cluster_id not in (None, node.cluster_id) or request.node_id not in (-1, node.node_id):
        # The client's list of brokers is out of date, and we are not who it thinks.
        return ApiVersionsResponse(error_code=Error.REBOOTSTRAP_REQUIRED, api_keys=[])
    features, features_epoch = node.emulated.finalized_features(node.metadata)
    return ApiVersionsResponse(
        error_code=Error.NONE,
        api_keys=[
            ApiVersion(api_key=api, min_version=first, max_version=last)
            for api, (first, last) in node.announced.items()
        ],
        supported_features=[
            Supported(name=name, min_version=first, max_version=last)
            for name, (first, last) in node.emulated.supported_features().items()
            if first > 0 or context.api_version >= 4
        ],
        finalized_features_epoch=features_epoch,
        finalized_features=[
            Finalized(name=name, max_version_level=level, min_version_level=level) for name, level in features.items()
        ],
    )


def _is_valid(name: str) -> bool:
    """Letters and digits, with - and . within."""
    return bool(name) and name[0] in LETTERS and name[-1] in LETTERS and set(name) <= LETTERS | {"-", "."}

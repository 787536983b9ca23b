"""Changes the feature levels of the cluster, such as metadata.version or transaction.version (KIP-584).

Sent by admin clients to the controller, directly or by way of a broker. A level says which formats and protocols all
nodes may use, so it is raised only after all nodes have been updated.
v1: kinds of downgrade, dry run (KIP-778). v2: all changes or none, one error for all.
"""

from __future__ import annotations

from minibroker.protocol.headers import Request, Response
from minibroker.schema.message import Struct
from minibroker.schema.types import EMPTY, Array, Bool, Int8, Int16, Int32, String, since


class UpdateFeaturesRequest(Request, api=57, versions="0-2", flexible="0+"):
    """Raise or lower feature levels."""

    timeout_ms: Int32 = 60000  # how long to wait for the change
    feature_updates: Array[FeatureUpdateKey]
    validate_only: Bool = since("1+", default=False)  # true: check and answer as usual, but change nothing

    class FeatureUpdateKey(Struct):
        feature: String  # such as metadata.version, transaction.version or group.version
        max_version_level: Int16  # the level to finalize; below 1: finalize none, which switches the feature off
        # 1: upgrade only, 2: downgrade if no metadata is lost, 3: downgrade even if some is lost
        upgrade_type: Int8 = since("1+", default=1)
        allow_downgrade: Bool = since("0", default=False)  # true: a lower level than the present one is meant


class UpdateFeaturesResponse(Response, api=57, versions="0-2", flexible="0+"):
    """Whether the changes are in force."""

    throttle_time_ms: Int32  # milliseconds a quota makes the client wait; 0: none
    error_code: Int16  # failure of the whole request: 41: not the controller; in v2 also 95 and 96, for any feature
    error_message: String | None  # null: no error, or nothing to add to the code
    results: Array[UpdatableFeatureResult] = since("0-1", default=EMPTY)

    class UpdatableFeatureResult(Struct):
        feature: String
        error_code: Int16  # 95: level not supported or not allowed, 96: the change could not be stored
        error_message: String | None  # null: no error, or nothing to add to the code

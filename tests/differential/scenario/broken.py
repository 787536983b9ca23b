"""Bytes that are no request: unknown APIs and versions, cut and overlong bodies, impossible lengths."""

from __future__ import annotations

from minibroker.protocol.headers import Request
from minibroker.protocol.messages.api_versions import ApiVersionsRequest
from minibroker.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from tests.differential.play import Play, frame_of
from tests.differential.scenario.build import batch, fetch, fetch_topic, produce

UNKNOWN_API = 999


def ask_with_broken_bytes(play: Play) -> None:
    """Send what cannot be understood, each on a connection of its own, with unknown topic ids: those known differ."""
    for api, version in [(UNKNOWN_API, 0), (-1, 0), (3, 99), (3, -1), (0, 99), (1, 99), (19, 50), (18, 99), (18, -1)]:
        play.ask_bytes(f"API {api} in version {version}", api, version, frame_of(bytes(20), api, version))
    for size in (0, 1, 4, 8, 9):
        play.ask_bytes(f"only {size} bytes", 3, 0, frame_of(b"", 3, 0)[:size])
    for request in (
        MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="plain")]),
        produce("two", batch(), ids={}),
        fetch(fetch_topic("two", (0, 0), ids={})),
    ):
        versions = play.versions(type(request))
        for version in {versions[0], versions[-1]}:
            break_body(play, request, version)
    for version in play.versions(ApiVersionsRequest, 3):
        break_body(play, ApiVersionsRequest(client_software_name="p", client_software_version="1"), version)
    for version in play.versions(DescribeTopicPartitionsRequest):
        topic = DescribeTopicPartitionsRequest.TopicRequest(name="plain")
        break_body(play, DescribeTopicPartitionsRequest(topics=[topic]), version)
    old = frame_of(produce("two", batch(), ids=play.ids).encode(2), ProduceRequest.api, 2)
    if 2 not in play.versions(ProduceRequest):
        play.ask_bytes("announced but not served", ProduceRequest.api, 2, old)


def break_body(play: Play, request: Request, version: int) -> None:
    """Send a request in every broken form."""
    body = request.encode(version)
    header = request.header_version(version)
    for step, broken in [
        ("no body", b""),
        ("a body without its last byte", body[:-1]),
        ("half a body", body[: len(body) // 2]),
        ("a byte too many", body + b"\0"),
        ("many bytes too many", body + bytes(100)),
        ("a body of zeros", bytes(len(body))),
        ("a body of ones", b"\xff" * len(body)),
        ("a body of large numbers", b"\x7f" * len(body)),
    ]:
        play.ask_bytes(step, request.api, version, frame_of(broken, request.api, version, header))

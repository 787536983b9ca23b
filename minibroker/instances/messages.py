"""Reports and shares as they travel between brokers and controller; Kafka has no such request."""

from __future__ import annotations

from minibroker.instances.reports import Flow, Report, Share
from minibroker.protocol.headers import Request, Response
from minibroker.schema.types import Bool, Float64, Int8, Int32, Int64, String

API = 9999  # of ours; it never leaves the process


class FlowReportRequest(Request, api=API, versions="0"):
    """What a broker has measured of an instance."""

    instance: String
    broker_id: Int32
    broker_epoch: Int64
    sequence: Int64
    master_epoch: Int64
    number: Int64
    produced: Float64  # bytes a second
    fetched: Float64
    stored_bytes: Int64


class FlowReportResponse(Response, api=API, versions="0"):
    """What it may use."""

    is_share: Bool  # False: the report was late, or there is no such instance
    master_epoch: Int64
    number: Int64
    broker_epoch: Int64
    sequence: Int64
    produced: Float64
    fetched: Float64
    fair_produced: Float64
    fair_fetched: Float64
    only_lowers: Bool
    is_full: Int8  # -1: not known


def request_of(instance: str, report: Report) -> FlowReportRequest:
    return FlowReportRequest(
        instance=instance,
        broker_id=report.broker,
        broker_epoch=report.broker_epoch,
        sequence=report.sequence,
        master_epoch=report.master_epoch,
        number=report.number,
        produced=report.used.produced,
        fetched=report.used.fetched,
        stored_bytes=report.stored_bytes,
    )


def report_of(request: FlowReportRequest) -> Report:
    return Report(
        *(request.broker_id, request.broker_epoch, request.sequence, request.master_epoch, request.number),
        *(Flow(request.produced, request.fetched), request.stored_bytes),
    )


def response_of(share: Share | None) -> FlowReportResponse:
    if share is None:
        share = Share(0, 0, 0, 0, Flow(0.0, 0.0), Flow(0.0, 0.0), only_lowers=False, is_full=None)
    return FlowReportResponse(
        is_share=share.number > 0,
        master_epoch=share.master_epoch,
        number=share.number,
        broker_epoch=share.broker_epoch,
        sequence=share.sequence,
        produced=share.flow.produced,
        fetched=share.flow.fetched,
        fair_produced=share.fair.produced,
        fair_fetched=share.fair.fetched,
        only_lowers=share.only_lowers,
        is_full=-1 if share.is_full is None else int(share.is_full),
    )


def share_of(response: FlowReportResponse) -> Share | None:
    if not response.is_share:
        return None
    return Share(
        *(response.master_epoch, response.number, response.broker_epoch, response.sequence),
        *(Flow(response.produced, response.fetched), Flow(response.fair_produced, response.fair_fetched)),
        only_lowers=response.only_lowers,
        is_full=None if response.is_full < 0 else bool(response.is_full),
    )

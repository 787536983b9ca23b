"""The lines of kafka-dump-log before 2.0, in the words of 0.8.2, 0.10.2 and 1.0, as older articles quote them.

    0.8.2    offset: 0 position: 0 isvalid: true payloadsize: 5 magic: 0 compresscodec: NoCompressionCodec crc: 592888119 keysize: 3
    0.10.2   the same with CreateTime behind the position, and NONE for a codec
    1.0      of batches size instead of payloadsize, of records keysize and valuesize

Not here: indexes and snapshots, whose lines are those of 2.8; decoders of internal topics.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minibroker.errors import InvalidMagic
from minibroker.log.batches import Batch
from minibroker.log.compression import CODEC_NAMES, NONE
from minibroker.log.formats import MESSAGE_BYTES_MIN
from minibroker.log.records import Record
from minibroker.tools.dump.batches import (
    Options,
    codec_name,
    header_keys,
    is_valid,
    producer_of,
    records_of,
    sequence_of,
    size_of,
    time_of,
    words,
)

# Release -> the newest format that it can read.
OLD_RELEASES = {"0.8.2": 0, "0.10.2": 1, "1.0": 2}
CODECS_OF_0_8 = ("NoCompressionCodec", "GZIPCompressionCodec", "SnappyCompressionCodec", "LZ4CompressionCodec")


def old_lines(batch: Batch, options: Options) -> Iterator[tuple[str, int | None, bool]]:
    """Yield the lines of a batch, each with the offset of the record that it shows, and whether a gap counts."""
    release = options.release
    if batch.magic > OLD_RELEASES[release]:
        words = f"Kafka {release} does not know format {batch.magic}; --release says whose words to use"
        raise InvalidMagic(words, batch.position + 16, "batch.magic")
    if release != "1.0":
        yield from _messages(batch, options)
    elif not options.deep:  # with or without --print-data-log
        yield _batch_of_1_0(batch), None, False
    else:
        for record, crc, valid in records_of(batch):
            yield _record_of_1_0(batch, record, crc, valid, options), record.offset, True


def _messages(batch: Batch, options: Options) -> Iterator[tuple[str, int | None, bool]]:
    """Before 1.0 a wrapper was shown as a message, or with --deep-iteration those within it."""
    if batch.is_wrapper and not options.deep:
        size = batch.size_bytes - MESSAGE_BYTES_MIN[batch.magic]  # a wrapper has no key
        line = _message(batch, options, batch.last_offset, batch.crc, is_valid(batch), size, None, batch.codec)
        if options.contents:
            payload = batch.buffer[batch.end_position - size : batch.end_position]
            line += f" payload: {bytes(payload).decode('utf-8', 'replace')}"
        yield line, None, False
        return
    for record, crc, valid in records_of(batch):
        size = -1 if record.value is None else len(record.value)
        assert crc is not None, "messages have checksums of their own"
        line = _message(batch, options, record.offset, crc, valid, size, record, NONE)
        yield line, record.offset, True


def _message(
    batch: Batch, options: Options, offset: int, crc: int, valid: bool, size: int, record: Record | None, codec: int
) -> str:
    fields: dict[str, object] = {"offset": offset, "position": batch.position}
    if options.release != "0.8.2":
        fields |= time_of(batch, record)
    fields |= {"isvalid": valid, "payloadsize": size, "magic": batch.magic}
    fields |= {"compresscodec": _codec(batch, options.release) if codec else _names(options.release)[NONE], "crc": crc}
    if record is not None and record.key is not None:
        fields["keysize"] = len(record.key)
    return words(**fields) + (_contents(record, options) if options.contents and record is not None else "")


def _batch_of_1_0(batch: Batch) -> str:
    fields: dict[str, object] = {"offset": batch.last_offset}
    if batch.magic > 1:
        fields = {"baseOffset": batch.base_offset, "lastOffset": batch.last_offset, **producer_of(batch)}
        fields["isTransactional"] = batch.is_transactional
    fields |= {"position": batch.position, **time_of(batch), "isvalid": is_valid(batch), "size": batch.size_bytes}
    return words(**fields, magic=batch.magic, compresscodec=_codec(batch, "1.0"), crc=batch.crc)


def _record_of_1_0(batch: Batch, record: Record, crc: int | None, valid: bool, options: Options) -> str:
    fields = {"offset": record.offset, "position": batch.position, **time_of(batch, record), "isvalid": valid}
    fields |= {"keysize": size_of(record.key), "valuesize": size_of(record.value), "magic": batch.magic}
    line = words(**fields, compresscodec=_codec(batch, "1.0")) + " "
    if batch.magic > 1:
        sequence, is_transactional = sequence_of(batch, record), batch.is_transactional
        line += words(producerId=batch.producer_id, producerEpoch=batch.producer_epoch, sequence=sequence)
        line += " " + words(isTransactional=is_transactional, headerKeys=header_keys(record))
    else:
        line += words(crc=crc)
    if batch.is_control:
        from minibroker.tools.dump.decoders import control_text

        return line + control_text(record, "2.8")
    return line + (_contents(record, options) if options.contents else "")


def _contents(record: Record, options: Options) -> str:
    """Return key and value as text; 0.8.2 shows a value that is null, the others then show neither."""
    if record.value is None and options.release != "0.8.2":
        return ""
    key = "" if record.key is None else f" key: {bytes(record.key).decode('utf-8', 'replace')}"
    value = "null" if record.value is None else bytes(record.value).decode("utf-8", "replace")
    return f"{key} payload: {value}"


def _names(release: str) -> Sequence[str]:
    return CODECS_OF_0_8 if release == "0.8.2" else [name.upper() for name in CODEC_NAMES[:4]]


def _codec(batch: Batch, release: str) -> str:
    return codec_name(batch, _names(release))

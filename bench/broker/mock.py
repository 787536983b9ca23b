"""librdkafka's mock cluster, as a process of its own: python mock.py NAME:PARTITIONS... until SIGTERM.

It is what `test.mock.num.brokers` makes inside a client. The mock knows no CreateTopics and gives topics that come into
being by themselves four partitions, so the C functions behind it are called here, from the library inside
confluent-kafka. Prints its address when it listens.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from importlib.metadata import files

PRODUCER = 0


def librdkafka() -> ctypes.CDLL:
    import confluent_kafka  # noqa: F401  # which loads what librdkafka itself needs

    for file in files("confluent-kafka") or ():
        if file.name.startswith("librdkafka"):
            return ctypes.CDLL(str(file.locate()))
    sys.exit("this confluent-kafka has no librdkafka of its own: install it as a wheel")


def main(topics: list[str]) -> None:
    library = librdkafka()
    pointer = ctypes.c_void_p
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = pointer
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    reason = ctypes.create_string_buffer(256)
    client = library.rd_kafka_new(PRODUCER, pointer(library.rd_kafka_conf_new()), reason, ctypes.c_size_t(len(reason)))
    cluster = pointer(library.rd_kafka_mock_cluster_new(pointer(client), 1))
    for topic in topics:
        name, _, partitions = topic.rpartition(":")
        library.rd_kafka_mock_topic_create(cluster, name.encode(), int(partitions), 1)
    print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    signal.sigwait([signal.SIGTERM, signal.SIGINT])


if __name__ == "__main__":
    # Blocked before librdkafka starts its threads, which take over the mask: then only sigwait gets them.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
    main(sys.argv[1:])

"""Logins of confluent-kafka, that is librdkafka."""

from __future__ import annotations

import time

import confluent_kafka
from confluent_kafka import KafkaError, Producer
from security import Refused

VERSION = confluent_kafka.__version__
SECONDS_MAX = 10
AGAIN_SECONDS = 3  # after an error of a login it tries again, and may come in
NEAR = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "linger.ms": 0, "log_level": 0}
FINAL = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED)


def produce(settings, token, topic, values):
    heard = []
    more = {"oauth_cb": lambda _: (token, time.time() + 3600)} if token else {}
    producer = Producer({**NEAR, **settings, **more, "error_cb": heard.append})
    if token:
        producer.poll(0)  # which asks for the token
    try:
        for value in values:
            _send(producer, topic, value, heard)
    finally:
        producer.purge()
        producer.flush(0)


def _send(producer, topic, value, heard):
    done = []
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: done.append(error))
    final, end = None, time.monotonic() + SECONDS_MAX
    while not done and time.monotonic() < end:
        producer.poll(0.1)
        if final is None and (final := next((each for each in heard if each.code() in FINAL), None)):
            end = time.monotonic() + AGAIN_SECONDS
    if not done:
        said = final or (heard[-1] if heard else KafkaError(KafkaError._TIMED_OUT))
        raise Refused(said.name(), said.str())
    heard.clear()
    if done[0] is not None:
        raise Refused(done[0].name(), done[0].str())

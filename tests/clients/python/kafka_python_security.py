"""Logins of kafka-python 1.4.7, 2.0.2 and 3.x."""

from __future__ import annotations

import logging

from kafka_python_client import NEW, kafka  # which makes old ones run in new Pythons

VERSION = kafka.__version__
SECONDS_MAX = 10
logging.disable(logging.CRITICAL)
TIMES = {"retry_backoff_ms": 50, "reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 200}
TIMES |= {"bootstrap_timeout_ms": SECONDS_MAX * 1000} if NEW else {"api_version_auto_timeout_ms": SECONDS_MAX * 1000}


def provider(token):
    if NEW:
        from kafka.net.sasl.oauth import AbstractTokenProvider
    else:
        from kafka.oauth.abstract import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self):
            return token

    return Provider()


def produce(settings, token, topic, values):
    more = {"sasl_oauth_token_provider": provider(token)} if token else {}
    producer = kafka.KafkaProducer(**TIMES, **settings, **more, max_block_ms=SECONDS_MAX * 1000, retries=3)
    try:
        for value in values:
            producer.send(topic, value, partition=0).get(SECONDS_MAX)
    finally:
        producer.close(0)

"""Logins of aiokafka; its settings are made here, because one of them is no text."""

from __future__ import annotations

import asyncio
import logging

import aiokafka
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider

from minibroker.embedded.client_settings import Access, client_settings

VERSION = aiokafka.__version__
SECONDS_MAX = 10
logging.disable(logging.CRITICAL)


class Provider(AbstractTokenProvider):
    def __init__(self, text):
        self.text = text

    async def token(self):
        return self.text


def produce(settings, token, topic, values):
    asyncio.run(asyncio.wait_for(_produce(settings, token, topic, values), SECONDS_MAX * 2))


async def _produce(settings, token, topic, values):
    more = {"sasl_oauth_token_provider": Provider(token)} if token else {}
    settings = client_settings("aiokafka", Access(**settings))
    producer = AIOKafkaProducer(
        **settings, **more, request_timeout_ms=SECONDS_MAX * 1000, retry_backoff_ms=50, metadata_max_age_ms=60_000
    )
    try:
        await producer.start()
        while (value := await asyncio.to_thread(next, values, None)) is not None:
            await producer.send_and_wait(topic, value, partition=0)
    finally:
        await producer.stop()

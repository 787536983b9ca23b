"""A web API that takes orders: FastAPI in front, aiokafka behind.

POST /orders writes an order to the topic `orders`, and answers when Kafka has it; GET /orders/{id} tells its state,
which other services write to the topic `states`.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel


class Order(BaseModel):
    id: str
    article: str
    count: int = 1


async def follow_states(consumer: AIOKafkaConsumer, states: dict[str, str]) -> None:
    """Keep what the topic says last of each order."""
    async for record in consumer:
        states[record.key.decode()] = json.loads(record.value)["state"]


def create_app(bootstrap_servers: str, request_timeout_ms: int = 10_000) -> FastAPI:
    states: dict[str, str] = {}
    producer: AIOKafkaProducer | None = None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        nonlocal producer
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap_servers, enable_idempotence=True, request_timeout_ms=request_timeout_ms
        )
        consumer = AIOKafkaConsumer("states", bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest")
        async with producer, consumer:
            following = asyncio.create_task(follow_states(consumer, states))
            yield
            following.cancel()

    app = FastAPI(title="Orders", lifespan=lifespan)

    @app.post("/orders", status_code=202)
    async def take_order(order: Order) -> dict[str, int]:
        try:
            written = await producer.send_and_wait("orders", order.model_dump_json().encode(), key=order.id.encode())
        except KafkaError as error:
            raise HTTPException(503, f"the order could not be written: {error}") from error
        return {"partition": written.partition, "offset": written.offset}

    @app.get("/orders/{order_id}")
    async def get_order(order_id: str) -> dict[str, str]:
        if order_id not in states:
            raise HTTPException(404, f"nothing is known of order {order_id}")
        return {"id": order_id, "state": states[order_id]}

    return app


def app() -> FastAPI:
    """What `uvicorn --factory orders_api:app` runs."""
    return create_app(os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))

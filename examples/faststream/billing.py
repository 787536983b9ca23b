"""A service on FastStream: orders in, bills out, with a discount for large ones.

`faststream run --factory billing:create_app` runs it.
"""

import os

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker
from pydantic import BaseModel, PositiveInt

DISCOUNT_FROM_CENTS = 10_000


class Order(BaseModel):
    id: int
    count: PositiveInt
    price_cents: int


class Bill(BaseModel):
    order: int
    cents: int
    discount: bool = False


def bill_of(order: Order) -> Bill:
    cents = order.count * order.price_cents
    if cents < DISCOUNT_FROM_CENTS:
        return Bill(order=order.id, cents=cents)
    return Bill(order=order.id, cents=cents * 9 // 10, discount=True)


def create_app(bootstrap_servers: str = os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")) -> FastStream:
    broker = KafkaBroker(bootstrap_servers, enable_idempotence=True)

    # What is no order is passed over: it is logged, and its offset committed like that of others.
    @broker.subscriber("orders", group_id="billing", auto_offset_reset="earliest", ack_policy=AckPolicy.ACK)
    @broker.publisher("bills")
    async def bill(order: Order) -> Bill:
        return bill_of(order)

    return FastStream(broker)

"""A worker on confluent-kafka: it bills orders, tries again what fails, and puts aside what will never do.

Each order of the topic `orders` becomes a bill in `bills`. One that fails is tried again, ATTEMPTS_MAX times in all;
then it goes to `orders-dead`, with the reason in a header. Its offset is committed after that, so nothing is lost when
the worker dies in between; then the order is billed again.
"""

import json
import logging
import os
from collections.abc import Callable
from threading import Event

from confluent_kafka import Consumer, KafkaException, Message, Producer

ATTEMPTS_MAX = 3
log = logging.getLogger("worker")


class TryAgain(Exception):
    """It may work the next time."""


def bill_of(order: dict) -> dict:
    """Return the bill of an order; what is no order is a ValueError or KeyError."""
    if order["count"] < 1:
        raise ValueError(f"count is {order['count']}")
    return {"order": order["id"], "cents": order["count"] * order["price_cents"]}


class Worker:
    def __init__(self, bootstrap_servers: str, process: Callable[[dict], dict] = bill_of) -> None:
        self.process = process
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self.producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 0})
        self.stopped = Event()

    def run(self) -> None:
        """Work until `stopped` is set."""
        self.consumer.subscribe(["orders"])
        try:
            while not self.stopped.is_set():
                message = self.consumer.poll(0.1)
                if message is None:
                    continue
                if message.error():
                    raise KafkaException(message.error())
                self.handle(message)
                self.consumer.commit(message, asynchronous=False)
        finally:
            self.consumer.close()

    def handle(self, message: Message) -> None:
        try:
            bill = self.attempt(json.loads(message.value()))
        except (TryAgain, ValueError, KeyError) as error:
            log.warning("order at %d is put aside: %r", message.offset(), error)
            self.write("orders-dead", message.key(), message.value(), {"reason": repr(error)})
        else:
            self.write("bills", message.key(), json.dumps(bill).encode(), {})

    def attempt(self, order: dict) -> dict:
        for _ in range(ATTEMPTS_MAX - 1):
            try:
                return self.process(order)
            except TryAgain as error:
                log.info("order %s is tried again: %s", order["id"], error)
        return self.process(order)

    def write(self, topic: str, key: bytes | None, value: bytes | None, headers: dict[str, str]) -> None:
        """Write a record; return when the broker has it."""
        failures: list[object] = []
        self.producer.produce(
            topic, value, key, headers=headers, on_delivery=lambda error, _: error and failures.append(error)
        )
        self.producer.flush()
        if failures:
            raise KafkaException(failures[0])


if __name__ == "__main__":
    Worker(os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")).run()

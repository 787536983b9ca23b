"""Streams: micro-batches of brokers and log directories."""

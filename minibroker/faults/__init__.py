"""Faults that clients meet: rules for requests, and toxics for connections.

rules.py    a rule: which requests it is for, and what it does to them
answers.py  an answer that carries an error where Kafka puts it, for every API and version
faults.py   the rules and toxics of one broker, counted and told of as events
toxics.py   what can be wrong with a stream of bytes, by Toxiproxy's names
links.py    a connection with toxics between its transport and its protocol

Nothing here knows the broker: broker/inject_faults.py asks the rules, and the server tells of new connections. A broker
without faults loads faults.py alone.
"""

from __future__ import annotations


class FaultError(ValueError):
    """A rule or toxic that cannot be; the text says what can."""

"""A broker inside a Python program: `minibroker.Broker`.

broker.py      what people use: the same verbs wherever the broker runs
in_process.py  a broker in a running loop
process.py     a broker in a process of its own
background.py  a loop in a thread, for programs without one
faults.py      what its clients shall meet
clients.py     what the libraries of others want to be told
"""

from minibroker.embedded.broker import Broker
from minibroker.embedded.engine import BrokerError, Record
from minibroker.faults import FaultError

__all__ = ["Broker", "BrokerError", "FaultError", "Record"]

"""Deterministic simulation: brokers and their clients in virtual time, everything moved by one seed.

run.py        one run: a world from a seed, and what came of it
loop.py       an event loop whose time passes only when everybody waits
processes.py  parts of the program that can be killed and paused as processes are
sockets.py    create_server and create_connection in memory
transport.py  one end of a connection
world.py      what foreign code asks the machine for: time and chance
"""

"""Deterministic simulation: brokers and their clients in virtual time, everything moved by one seed.

run.py         one run: a world from a seed, what foreign code there asks for time and chance, and what came of it
loop.py        an event loop whose time passes only when everybody waits
processes.py   parts of the program that can be killed and paused as processes are
sockets.py     create_server and create_connection in memory: listeners and both ends of connections
disk.py        a disk that forgets what was not synced, and fails when told to
strays.py      what would escape, and is refused by name; foreign_clients.py: what clients keep for themselves
power_loss.py  what may be left of it when the power goes
"""

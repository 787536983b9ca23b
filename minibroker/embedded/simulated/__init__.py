"""`minibroker.simulate`: an application and its brokers in virtual time, under faults that a seed draws.

decorator.py   the decorator: a test is run from one seed after the other
world.py       what a test gets: brokers, the clock, records, and the way to peace
apps.py        pieces of the application: they are called in processes, which die and are started again
plan.py        what befalls them, drawn from a seed
harm.py        carrying that out
shrinking.py   less of it, that still fails
story.py       what happened, as lines for people

The loop, the sockets and the disks are those of minibroker/simulation.
"""

"""Replication: a partition on one broker, and the controller that says who leads.

replica.py     one partition on one broker: log, leader, high watermark
leader.py      what a leader knows of its followers: progress, ISR, high watermark
follower.py    what a follower asks, and what it does with the answer: append, cut
fetching.py    what a leader reads for a follower, and where their logs part
network.py     links between brokers, that can be slow, cut, held and stepped
controller.py  what a wish becomes: records of the metadata log, or an error; its docstring names its other parts
brokers.py     the life of a broker: registered, unfenced, shut down, and who leads without it
"""

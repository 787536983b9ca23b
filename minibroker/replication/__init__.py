"""Replication: a partition on one broker, and how its leader and followers come to the same log.

replica.py                 one partition on one broker: log, role, high watermark
leader.py                  what a leader knows of its followers: progress, ISR, high watermark, where their logs part
follower.py                what a follower asks, and what it does with the answer: append, cut
replica_set.py             all partitions of a broker: opened, led, followed and removed as the metadata say
manager.py                 what a broker of a cluster has besides:
follower_sessions.py         fetch sessions of its followers
fetcher.py                   fetches from its leaders
isr_updates.py               AlterPartition: whom its leaders have in sync
directory_assignments.py     AssignReplicasToDirs: which of its logs cannot be opened
network.py                 links between brokers, that can be slow, cut, held (gate.py) and stepped
"""

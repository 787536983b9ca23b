"""Replication: a partition on one broker, and the controller that says who leads.

replica.py     one partition on one broker: log, leader, high watermark
controller.py  what a wish becomes: records of the metadata log, or an error
brokers.py     the life of a broker: registered, unfenced, shut down, and who leads without it
"""

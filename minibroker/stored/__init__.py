"""Declarations of what brokers store: records of the internal topics and of the metadata log, side files, and the
payloads that consumers hand each other through JoinGroup.

The same language as the wire messages in protocol/messages, apart from them because the log and the coordinators use
these without knowing the protocol.
"""

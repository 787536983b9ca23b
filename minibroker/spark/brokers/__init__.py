"""Brokers: which offsets a query reads of them, fetching, and the rows of what comes."""

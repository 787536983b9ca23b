"""Requests answered, one module per family. See minibroker/broker/apis.py for which function answers what."""

"""Fuzzes the target in requests.py for as long as asked: `make fuzz`, or this file with libFuzzer's options."""

from run import fuzz

fuzz("requests")

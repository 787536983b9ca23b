"""Fuzzes the target in compression.py for as long as asked: `make fuzz`, or this file with libFuzzer's options."""

from run import fuzz

fuzz("compression")

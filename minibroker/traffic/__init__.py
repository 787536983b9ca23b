"""Requests and answers as they cross a listener: kept for who looks at a broker when a test has failed.

tap.py    stands in front of a listener's service, and sees each request and its answer
ring.py   the last requests of each connection
lines.py  a request and its answer as one line for people
"""

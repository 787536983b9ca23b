"""Requests and answers as they cross a listener: kept, recorded, sent again, passed on.

tap.py          stands in front of a listener's service, and sees each request and its answer
ring.py         the last requests of each connection, for who looks at a broker when a test has failed
lines.py        a request and its answer as one line for people
recording.py    a file of frames: written, read, and what of it is masked; files.py: on disk
exchanges.py    its entries as requests with their answers
replay.py       recorded requests sent to another broker
differences.py  its answers beside those that were recorded, field by field
proxy.py        between any client and any broker; telling.py: a line for each request
"""

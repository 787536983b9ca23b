"""Several brokers in one process, and what can be done to them.

cluster.py          the brokers, their controller, the network between them; the verbs: kill, pause, cut, elect, ...
controller_server.py  the controller: leads the metadata log, answers brokers, does by itself what is due
"""

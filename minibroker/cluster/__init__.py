"""Several brokers in one process, and what can be done to them. In the order in which one reads them:

nodes.py            the brokers and their controller, their states, disks, and the network between them
cluster.py          start, stop, kill, pause; admin.py: topics, settings, leaders, replicas
controller_server.py  the controller: leads the metadata log, answers brokers, does by itself what is due
links.py, disks.py, steps.py, cleaning.py  links that are cut, disks that are full, step mode, cleaning on demand
waits.py, groups.py  waiting for a state; groups of consumers
snapshot.py, view_source.py  what there is to see, as a picture and as rows
verbs.py, control.py  all of it by name, for HTTP, the command line and lessons
"""

"""One broker: broker.py wires it, apis.py maps what it serves, handlers/ answers."""

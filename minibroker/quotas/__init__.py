"""How much each client may take: nothing of it is imported by a broker on which nobody has set a quota."""

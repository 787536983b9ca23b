"""Exit statuses, as grep and most tools have them."""

DONE, FAILED, USAGE = 0, 1, 2
# What shells expect of a program that ended by Ctrl-C, or by SIGTERM.
INTERRUPTED, TERMINATED = 130, 143

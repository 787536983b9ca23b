"""Several brokers: as a program has them in its hand, on disk, and before the clients of others."""

"""One script of work, done by foreign Kafka clients of many ages against any broker; see README.md."""

"""Writing to topics: rows into batches, batches to leaders, each once."""

"""Group coordinator: consumer groups of both protocols, and how far each group has read."""

OFFSETS_TOPIC = "__consumer_offsets"  # where groups and their offsets are kept

"""Consumer groups: who shares the work, and how far each group has read."""

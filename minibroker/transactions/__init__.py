"""Transaction coordinator: transactional ids, their producers, and the state of each one's transaction."""

TRANSACTION_STATE_TOPIC = "__transaction_state"  # where they are kept

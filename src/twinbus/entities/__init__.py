"""What queues, topics and subscriptions do with a message. Pure: (state, command, now) -> facts."""

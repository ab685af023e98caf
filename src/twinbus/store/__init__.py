"""Facts that survive: one LMDB environment a namespace, group commits, recovery. Knows nothing of AMQP."""

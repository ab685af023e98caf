"""Durable storage: one LMDB environment per namespace, group commits and recovery. Knows nothing of AMQP."""

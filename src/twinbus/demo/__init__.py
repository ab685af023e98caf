"""The demonstration: two namespaces, a paired client, a primary killed for real, and an account of every message."""

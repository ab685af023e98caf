"""The demo: two namespaces, a paired client, a primary that is really killed, and an account of every message."""

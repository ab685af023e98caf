"""Paired namespaces over the official SDK: sends go on, into the secondary, while the primary is down."""

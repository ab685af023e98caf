"""Predict an outage: how the backlog fills, spreads and drains, and what it costs. Pure arithmetic."""

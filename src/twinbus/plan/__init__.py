"""What an outage will do: how the backlog fills and spreads, how long it drains, and what it costs. Pure arithmetic."""

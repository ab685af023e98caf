"""Authentication and authorisation: SAS tokens, policies, claims, connection strings. Pure: no I/O, no clock."""

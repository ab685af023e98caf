"""Who may do what: SAS tokens, policies, claims, connection strings. Pure: bytes and times in, decisions out."""

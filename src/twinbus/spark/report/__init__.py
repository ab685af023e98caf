"""The report: the ledger's tables as one HTML page with charts, and as tables in the terminal."""

"""The report: the ledger's tables as one page of HTML, with charts, and as tables on the terminal."""

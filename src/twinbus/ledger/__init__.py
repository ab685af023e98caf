"""The operations ledger: what happened, counted, as JSON lines in rolling files; docs/ledger.md is the contract."""

"""The operations ledger: counted operations as JSON lines in rolling files. docs/ledger.md is the contract."""

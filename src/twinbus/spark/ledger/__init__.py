"""The ledger pipeline: reads ledger files, writes Delta tables; docs/ledger.md describes them."""

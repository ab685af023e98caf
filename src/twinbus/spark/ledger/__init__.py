"""The ledger pipeline: ledger files in, Parquet tables out; docs/ledger.md tells what is in them."""

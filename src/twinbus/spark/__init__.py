"""The data pipeline on Spark: the `servicebus` source and sink, the syphon job, the ledger pipeline, the report."""

"""The data pipeline on Spark: the `servicebus` source and sink, the syphon as a Spark job, the ledger, the report."""

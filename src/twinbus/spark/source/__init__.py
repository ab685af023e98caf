"""`spark.read`, `readStream`, `write` and `writeStream` with `.format("servicebus")`."""

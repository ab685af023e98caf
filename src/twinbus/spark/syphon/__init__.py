"""The syphon as a Spark job: rounds of bounded tasks over the backlog queues."""

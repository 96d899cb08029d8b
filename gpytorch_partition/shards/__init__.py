"""
What is computed of a shard of rows, and how results of shards become one: pure functions, which any engine can run.

A shard is a pair of points and targets. No result depends on where or how often it was computed, so that one that is
lost is computed again, and results are merged by a tree that depends on the number of shards only.
"""

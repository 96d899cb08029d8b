"""
Computations on a shard of rows, and merges of their results: pure functions, which any engine can run.

A shard is a pair of points and targets. No result depends on where or how often it was computed, so a lost result is
computed again. Results are merged by a tree that depends only on the number of shards.
"""

"""Iterative linear algebra on closures; knows nothing of partitions."""

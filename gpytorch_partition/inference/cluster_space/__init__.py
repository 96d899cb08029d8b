"""Iterative inference in cluster space: vectors have a number for each cluster, and rows enter by products only."""

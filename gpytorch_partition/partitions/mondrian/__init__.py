"""Partitions by Mondrian processes: cells, trees with the times of their cuts, and projections of the columns."""

"""Mondrian processes as a source of clusters: cells, trees with the times of their cuts, projections of the columns."""

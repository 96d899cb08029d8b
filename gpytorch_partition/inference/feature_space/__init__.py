"""Exact inference from counts of clusters, whatever the number of rows."""

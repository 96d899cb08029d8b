"""Exact inference in feature space, from counts and sums by cluster, for any number of rows."""

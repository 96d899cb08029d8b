"""Inference in spaces with a number for each cluster: exact in feature space, iterative in cluster space."""

"""Exact inference with clusters: evidence, the feature space, predictions."""

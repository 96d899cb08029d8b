"""The operators S, covariances of cluster effects."""

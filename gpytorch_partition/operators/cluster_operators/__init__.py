"""The operators S, prior covariances of cluster effects: flat, path sums, attached paths and side by side."""

"""Data structures of clusters: the one-hot matrix Z, cluster codes, counts of co-occurrence, trees and node weights."""

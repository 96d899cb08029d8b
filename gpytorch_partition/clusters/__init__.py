"""The algebra of clusters: one-hot rows Z, their codes and counts, trees of clusters and the weights of their nodes."""

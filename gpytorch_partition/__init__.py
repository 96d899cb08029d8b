"""Random partition kernels for GPyTorch."""

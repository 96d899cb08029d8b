"""Models of GPyTorch's examples with this package's kernels, compared with dense algebra in float64."""

"""Exact models by other ways than those of the package, which tests compare it with."""

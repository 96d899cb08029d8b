"""Solvers, quadratures and threads for matrices known by their products only; independent of partitions."""

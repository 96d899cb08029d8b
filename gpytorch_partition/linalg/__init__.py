"""Solvers, quadratures and threads for matrices that are known by their products only; independent of partitions."""

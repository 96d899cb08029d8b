"""Predictive means, variances and samples, each by the cheapest method."""

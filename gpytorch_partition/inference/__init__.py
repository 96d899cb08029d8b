"""Inference: the marginal likelihood, exact computations in the feature space, and predictions."""

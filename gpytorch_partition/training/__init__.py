"""Training of hyperparameters: by marginal likelihood, or by the predictive density of held-out rows."""

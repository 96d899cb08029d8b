"""The marginal likelihood as a function of outputscale and noise, from the spectrum of the covariance."""

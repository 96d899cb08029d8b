"""Every kernel at every size of outputscale and noise, against dense algebra in float64: docs/extremes.md."""

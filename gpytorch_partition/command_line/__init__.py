"""What `python -m gpytorch_partition` does: one module per command, and what they share."""

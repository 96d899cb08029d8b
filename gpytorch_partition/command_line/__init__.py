"""The command line, `python -m gpytorch_partition`: one module per command, and modules that they share."""

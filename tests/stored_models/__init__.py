"""Fitted models whose numbers must stay: `python -m tests.stored_models --help`."""

"""The command line, `python -m gpytorch_partition`; :func:`load_model` returns a model of it in Python."""

from gpytorch_partition.command_line.model_file import SavedModel, load_model

__all__ = ["SavedModel", "load_model"]

"""
The command line, `python -m gpytorch_partition`: one module per command, and shared modules.

:func:`load_model` returns a model of the command `fit` in Python.
"""

from gpytorch_partition.command_line.model_file import SavedModel as SavedModel
from gpytorch_partition.command_line.model_file import load_model as load_model

__all__ = [
    "SavedModel",
    "load_model",
]

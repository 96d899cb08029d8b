"""
The command line, `python -m gpytorch_partition`: one module per command, and modules that they share.

:func:`load_model` brings a model that the command `fit` wrote back into Python.
"""

from gpytorch_partition.command_line.model_file import SavedModel as SavedModel
from gpytorch_partition.command_line.model_file import load_model as load_model

__all__ = [
    "SavedModel",
    "load_model",
]

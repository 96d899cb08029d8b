"""The command line: `python -m gpytorch_partition compare | fit | predict`."""

from __future__ import annotations

import sys
import time
import warnings
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpytorch_partition.command_line.compare import compare
from gpytorch_partition.command_line.errors import CommandError, check_writable
from gpytorch_partition.command_line.model_file import SavedModel, load_model, save_model
from gpytorch_partition.command_line.tables import read_table, read_training_data, write_table
from gpytorch_partition.estimators import PartitionGPRegressor
from gpytorch_partition.estimators.regressor import KERNELS
from gpytorch_partition.estimators.scores import half_width

PROGRAM = "python -m gpytorch_partition"
